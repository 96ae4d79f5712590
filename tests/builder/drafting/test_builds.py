"""A build with a draft: the target runs once over held-out text, and a draft that is read wrongly is told."""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from draftsmith.builder.draft_options import DraftChoice
from draftsmith.builder.package.fingerprint import hash_checkpoint
from draftsmith.builder.pipeline import build
from draftsmith.builder.plan import BuildPlan
from draftsmith.builder.progress import Silent, SilentStage, Stage
from draftsmith.builder.vocabulary.files import make_facts, save_subset

from tests.tiny_draft_formats import write_tiny_draft


class Titles:
    """A ``Progress`` that keeps what was opened: title -> totals."""

    def __init__(self) -> None:
        self.totals: dict[str, list[float | None]] = {}

    def stage(self, title: str, *, total: float | None = None, unit: str = "") -> Stage:
        self.totals.setdefault(title, []).append(total)
        return SilentStage()


def make_plan(checkpoint: Path, output: Path, draft: DraftChoice) -> BuildPlan:
    return BuildPlan(
        checkpoint=checkpoint,
        output=output,
        name="tiny",
        precisions=("int8",),
        kernels="onnxruntime",
        max_batch=1,
        max_length=256,
        max_query_len=32,
        num_threads=1,
        draft=draft,
    )


def test_the_quality_gate_takes_the_targets_states_from_the_recall(
    tiny_checkpoint: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = tiny_checkpoint("llama")
    draft = write_tiny_draft(tmp_path / "draft", "specvocab")
    with_draft, without = Titles(), Titles()

    with caplog.at_level(logging.WARNING):
        (drafted,) = build(make_plan(checkpoint, tmp_path / "a", DraftChoice(source=str(draft))), with_draft)
    (plain,) = build(make_plan(checkpoint, tmp_path / "b", DraftChoice(source="none")), without)

    sequences = with_draft.totals["quality gate"][0]
    assert with_draft.totals["run target"] == [4]  # layers, once
    assert "run target" not in without.totals
    assert without.totals["quality gate"] == [sequences + 4]
    assert drafted.quality["num_tokens"] == plain.quality["num_tokens"]
    assert drafted.quality["kl_per_token"] == pytest.approx(plain.quality["kl_per_token"], rel=1e-3)
    assert drafted.quality["top1_agreement"] == plain.quality["top1_agreement"]
    assert drafted.manifest.draft is not None
    assert drafted.manifest.draft.quality["recall"]["positions"] > 0
    guessed = [record.getMessage() for record in caplog.records if "hardly a guess" in record.getMessage()]
    assert len(guessed) == 1  # random weights
    assert "feature layers: the file names none" in guessed[0]


@pytest.mark.parametrize(("name", "expected"), [("subset.safetensors", {"4": 0.5}), ("subset.npy", None)])
def test_a_subset_brings_the_recall_that_its_file_has(
    tiny_checkpoint: Callable[..., Path], tmp_path: Path, name: str, expected: dict[str, float] | None
) -> None:
    checkpoint, path = tiny_checkpoint("llama"), tmp_path / name
    draft = write_tiny_draft(tmp_path / "draft", "specvocab")
    facts = make_facts(hash_checkpoint(checkpoint, Silent()), "", 4, {"recall": {"4": 0.5}})
    save_subset(path, np.array([1, 2, 3, 5], np.int32), facts)

    choice = DraftChoice(source=str(draft), head="subset", vocabulary=path)
    (built,) = build(make_plan(checkpoint, tmp_path / "out", choice), Silent())

    assert built.manifest.draft is not None
    assert built.manifest.draft.quality.get("recall") == expected
