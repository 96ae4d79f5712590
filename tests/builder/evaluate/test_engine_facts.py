"""What is read of engine.json, and which configurations share a baseline."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from draftsmith.builder.errors import UsageError
from draftsmith.builder.evaluate import lineup
from draftsmith.builder.evaluate.configuration import Configuration, parse_configurations
from draftsmith.builder.evaluate.engine_facts import EngineFacts, describe_manifest, find_engine, read_recall
from draftsmith.builder.evaluate.lineup import make_entries
from draftsmith.model_repo.contract.manifest import DraftEngine, EngineFile, KvCacheSpec

from tests.builder.evaluate.results_cases import FACTS
from tests.tiny_manifest import tiny_manifest

CACHE = KvCacheSpec(num_layers=1, num_kv_heads=2, head_dim=8, capacity=16, dtype="float16")
DRAFT = DraftEngine(
    kind="eagle3",
    name="drafty",
    format="ours",
    head="speculative",
    is_native=True,
    first_graph="draft_first.onnx",
    next_graph="draft_next.onnx",
    feature_size=12,
    hidden_size=4,
    num_outputs=16,
    num_candidates=64,
    window=0,
    kv_cache=CACHE,
    spec={},
    quality={"recall": {"64": 0.9, "8": 0.5}},
)


def make_file(name: str, num_bytes: int, digit: str = "0") -> EngineFile:
    return EngineFile(name=name, num_bytes=num_bytes, sha256=digit * 64)


FILES = [make_file("target.onnx", 10, "1"), make_file("target.weights", 90, "2"), make_file("tokenizer.json", 100, "3")]


def test_the_drafts_files_are_extra_memory_and_the_targets_are_not() -> None:
    files = [*FILES, make_file("draft_next.onnx", 2), make_file("draft.weights", 8)]
    facts = describe_manifest(Path("e"), tiny_manifest(files=files, draft=DRAFT))
    assert (facts.target_bytes, facts.draft_bytes, facts.extra_share) == (200, 10, 0.05)
    assert facts.slot_bytes == 2 * 2 * 8 * 16 * 2
    assert (facts.num_candidates, facts.head, facts.recall) == (64, "speculative", {8: 0.5, 64: 0.9})


def test_an_engine_without_a_draft_has_no_extras() -> None:
    facts = describe_manifest(Path("e"), tiny_manifest(files=FILES))
    assert (facts.has_draft, facts.draft_bytes, facts.slot_bytes, facts.recall) == (False, 0, 0, {})
    assert facts.label == "tiny fp16"


def test_engines_with_the_same_weights_have_the_same_target() -> None:
    def key(*files: EngineFile) -> tuple[str, ...]:
        return describe_manifest(Path("e"), tiny_manifest(files=list(files))).target_key

    other_graph = make_file("target.onnx", 11, "9")
    assert key(*FILES) == key(other_graph, *FILES[1:], make_file("draft.weights", 5, "7")) == ("2" * 64,)
    assert key(FILES[0]) == ("1" * 64,) != key(other_graph)


def test_recall_that_is_no_share_is_left_out() -> None:
    assert read_recall({"recall": {"8": 0.5, "x": 0.1, "9": 2, "10": "no"}}) == {8: 0.5}
    fitted = {"num_candidates": 64, "positions": 9, "recall": 0.9, "mass": 0.8, "tasks": {"chat": {"recall": 0.7}}}
    assert read_recall({"recall": fitted}) == {64: 0.9}
    assert read_recall({"recall": {**fitted, "by_k": {"128": 0.95, "64": 0.9}}}) == {64: 0.9, 128: 0.95}
    assert read_recall({}) == read_recall({"recall": 0.9}) == {}


def test_a_package_and_its_version_folder_are_both_taken(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "engine.json").write_text("{}")
    assert find_engine(tmp_path) == find_engine(tmp_path / "1") == tmp_path / "1"
    with pytest.raises(UsageError, match=r"found no engine\.json"):
        find_engine(tmp_path / "2")


def entries_of(monkeypatch: pytest.MonkeyPatch, **facts: EngineFacts) -> Any:
    def read(configuration: Configuration) -> EngineFacts:
        return facts[configuration.name]

    monkeypatch.setattr(lineup, "read_facts", read)
    return make_entries(parse_configurations([f"{name}=engine" for name in facts]))


def test_equal_targets_share_a_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = entries_of(monkeypatch, a=FACTS, b=replace(FACTS, folder=Path("other")))
    assert [(entry.name, entry.baseline) for entry in entries] == [("plain", "plain"), ("a", "plain"), ("b", "plain")]
    assert entries[0].is_baseline


def test_every_target_has_its_own_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(FACTS, precision="fp16", target_key=("b",))
    entries = entries_of(monkeypatch, a=FACTS, b=other)
    assert [(entry.name, entry.baseline) for entry in entries][:2] == [
        ("plain (smollm2 int8)", "plain (smollm2 int8)"),
        ("plain (smollm2 fp16)", "plain (smollm2 fp16)"),
    ]
    assert [entry.baseline for entry in entries[2:]] == ["plain (smollm2 int8)", "plain (smollm2 fp16)"]
    twins = entries_of(monkeypatch, a=FACTS, b=replace(FACTS, folder=Path("other"), target_key=("b",)))
    assert [entry.name for entry in twins[:2]] == ["plain (engine)", "plain (other)"]
