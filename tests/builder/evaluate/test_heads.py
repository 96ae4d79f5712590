"""Engines of every head of one draft: what is copied, kept, measured, and that all give plain decoding's tokens."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.draft.open import open_draft
from draftsmith.builder.draft.plan import DraftPlan
from draftsmith.builder.draft_options import DraftChoice
from draftsmith.builder.errors import UsageError
from draftsmith.builder.evaluate import draft_steps, vocabularies
from draftsmith.builder.evaluate.configuration import parse_configurations
from draftsmith.builder.evaluate.draft_steps import measure_draft_steps
from draftsmith.builder.evaluate.engine_facts import EngineFacts, find_engine, read_facts
from draftsmith.builder.evaluate.evaluation import check_results, evaluate
from draftsmith.builder.evaluate.heads import FULL, write_heads
from draftsmith.builder.evaluate.lineup import make_entries
from draftsmith.builder.evaluate.plan import EvaluationPlan
from draftsmith.builder.evaluate.variants import Variant, write_variant
from draftsmith.builder.evaluate.vocabularies import (
    ALONE,
    FREQUENCY,
    GROUPED,
    PREFERENCE,
    SPECULATIVE,
    DraftOfTarget,
    VocabularyOptions,
    write_vocabularies,
)
from draftsmith.builder.package.manifest import read_manifest
from draftsmith.builder.pipeline import compile_only
from draftsmith.builder.plan import BuildPlan
from draftsmith.builder.progress import Silent
from draftsmith.plugins.cpu_library import find_compiler

from tests.tiny_draft_formats import NUM_CANDIDATES, RANK, VOCAB_SIZE, write_tiny_draft
from tests.tiny_drafts import make_draft
from tests.tiny_models import write_tiny_checkpoint

OPTIONS = VocabularyOptions(num_candidates=NUM_CANDIDATES, subset_size=40)
NAMES = {FULL, SPECULATIVE, ALONE, GROUPED, FREQUENCY, PREFERENCE}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("heads")


@pytest.fixture(scope="module")
def pair(root: Path) -> Iterator[DraftOfTarget]:
    draft = write_tiny_draft(root / "draft", "specvocab")
    with open_checkpoint(write_tiny_checkpoint(root / "checkpoint", "llama")) as target:
        opened: Any = open_draft(draft, target=target.spec)
        yield DraftOfTarget(target=target, target_sha256="a" * 64, draft=opened, draft_sha256="b" * 64)


@pytest.fixture(scope="module")
def base(root: Path, pair: DraftOfTarget) -> Path:
    plan = BuildPlan(
        checkpoint=root / "checkpoint",
        output=root,
        name="tiny",
        precisions=("int8" if find_compiler() else "fp16",),
        max_batch=2,
        max_length=256,
        max_query_len=32,
        num_threads=1,
        draft=DraftChoice(source=str(root / "draft"), head="full"),
        max_kl=1e9,
        min_top1=0.0,
    )
    return compile_only(plan, Silent())[0].folder


@pytest.fixture(scope="module")
def engines(root: Path, pair: DraftOfTarget, base: Path) -> dict[str, Path]:
    files = write_vocabularies(pair, OPTIONS, root / "files", Silent())
    return write_heads(base, pair, files, root / "engines", Silent())


def facts_of(engines: dict[str, Path], name: str) -> EngineFacts:
    (configuration,) = parse_configurations([f"x={engines[name]},draft=model"])
    return read_facts(configuration)


def test_more_candidates_than_tokens_are_refused(engines: dict[str, Path]) -> None:
    vocab_size = read_manifest(find_engine(engines[SPECULATIVE])).vocab_size
    for k in (vocab_size, vocab_size + 1):
        (configuration,) = parse_configurations([f"x={engines[SPECULATIVE]},draft=model,k={k}"])
        if k == vocab_size:
            assert read_facts(configuration).head == "speculative"
            continue
        with pytest.raises(UsageError, match=f"k of at most {vocab_size}, the vocabulary, found {k}"):
            read_facts(configuration)


def test_every_head_has_an_engine_of_the_same_target(base: Path, engines: dict[str, Path]) -> None:
    assert set(engines) == NAMES
    for name in engines:
        assert facts_of(engines, name).target_key == facts_of({name: base}, name).target_key
    heads = {name: read_manifest(folder).draft for name, folder in engines.items()}
    found = {name: draft.head for name, draft in heads.items() if draft is not None}
    subsets = dict.fromkeys((FREQUENCY, PREFERENCE), "subset")
    assert found == {FULL: "full", SPECULATIVE: "speculative", ALONE: "speculative", GROUPED: "grouped", **subsets}


def test_the_facts_say_what_each_head_holds_and_takes(engines: dict[str, Path]) -> None:
    full, own, alone, subset = (facts_of(engines, name) for name in (FULL, SPECULATIVE, ALONE, PREFERENCE))
    assert (full.ranking_bytes, full.recall, full.num_candidates) == (0, {}, 0)
    assert own.ranking_bytes >= VOCAB_SIZE * RANK
    assert own.target_bytes == full.target_bytes
    assert NUM_CANDIDATES in own.recall
    assert (own.recall_k, own.has_scores_alone) == (NUM_CANDIDATES, False)
    assert (alone.recall_k, alone.has_scores_alone) == (1, True)
    assert alone.recall[1] <= own.recall[NUM_CANDIDATES]
    assert list(subset.recall) == [subset.recall_k] == [40]


def test_all_heads_give_plain_decodings_tokens(root: Path, engines: dict[str, Path]) -> None:
    questions = root / "question.jsonl"
    questions.write_text(json.dumps({"question_id": 1, "category": "qa", "turns": ["the other the other the"]}))
    plan = EvaluationPlan(
        configurations=parse_configurations([f"{name}={folder},draft=model" for name, folder in engines.items()]),
        output=root / "out",
        questions=(questions,),
        max_tokens=24,
        has_languages=False,
        long_context=0,
        num_threads=1,
    )
    results = evaluate(plan, Silent())
    check_results(results)
    assert results.num_compared == 2 * len(NAMES)
    assert all(row.num_drafted > 0 for row in results.rows if not row.is_baseline)
    assert set(results.draft_steps) == NAMES
    assert (plan.output / "figures.csv").read_text().count("\n") == 1 + 2 * 3 * (1 + len(NAMES))


def test_fixed_trees_have_their_size_in_every_step(root: Path, engines: dict[str, Path]) -> None:
    fixed = "draft=model,width=1,depth=3,nodes=3,tree=fixed"
    plan = EvaluationPlan(
        configurations=parse_configurations([f"x={engines[FULL]},{fixed}", f"y={engines[SPECULATIVE]},{fixed}"]),
        output=root / "fixed",
        questions=(root / "question.jsonl",),
        max_tokens=12,
        has_languages=False,
        long_context=0,
        num_threads=1,
    )
    (root / "question.jsonl").write_text(json.dumps({"question_id": 1, "category": "qa", "turns": ["the other the"]}))
    results = evaluate(plan, Silent())
    check_results(results)
    rows = [row for row in results.rows if not row.is_baseline]
    assert all(3 * (row.num_steps - 3) <= row.num_drafted <= 3 * row.num_steps for row in rows)
    assert results.rows[0].num_drafted == 0


def test_what_is_there_already_is_kept(
    root: Path, pair: DraftOfTarget, base: Path, engines: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: (folder / "engine.json").stat().st_ino for name, folder in engines.items()}
    monkeypatch.setattr(vocabularies, "run_target", None)
    files = write_vocabularies(pair, OPTIONS, root / "files", Silent())
    again = write_heads(base, pair, files, root / "engines", Silent())
    assert {name: (folder / "engine.json").stat().st_ino for name, folder in again.items()} == before


def test_another_draft_is_written_anew(root: Path, pair: DraftOfTarget, base: Path) -> None:
    def write(key: str) -> int:
        plan = DraftPlan(draft=pair.draft, head="full", name="tiny")
        folder = write_variant(base, root / "one", pair.target, Variant(plan=plan, quality={}, key=key), Silent())
        return (folder / "engine.json").stat().st_ino

    first = write("a")
    assert write("a") == first
    assert write("b") != first


def test_a_draft_that_reads_other_layers_is_refused(root: Path, pair: DraftOfTarget, base: Path) -> None:
    plan = DraftPlan(draft=make_draft(pair.target.spec, feature_layers=(0, 1, 2)), head="full", name="tiny")
    with pytest.raises(UsageError, match=r"found one that reads \[0, 1, 2\]"):
        write_variant(base, root / "other", pair.target, Variant(plan=plan, quality={}, key=""), Silent())
    assert not (root / "other").exists()


def test_a_draft_with_a_subset_of_its_own_is_refused(root: Path, pair: DraftOfTarget) -> None:
    draft = make_draft(pair.target.spec, target_ids=range(40))
    other = DraftOfTarget(target=pair.target, target_sha256="a" * 64, draft=draft, draft_sha256="c" * 64)
    with pytest.raises(UsageError, match="found a head of 40 tokens of its own"):
        write_vocabularies(other, OPTIONS, root / "files", Silent())


def test_draft_steps_take_what_the_clock_says(engines: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_steps, "_ROUNDS", 2)
    ticks = iter(range(10**6))
    texts = [f"full={engines[FULL]},draft=model", f"own={engines[SPECULATIVE]}", f"n={engines[FULL]},draft=ngram"]
    entries = make_entries(parse_configurations(texts))
    found = measure_draft_steps(entries, 1, Silent(), clock=lambda: next(ticks) / 1e3)
    assert set(found) == {"full", "own"}
    assert [(step.token_ms, step.level_ms) for step in found.values()] == [pytest.approx((1.0, 1.0))] * 2
    assert measure_draft_steps(entries[:1], 1, Silent()) == {}
