"""Whole tiny runs: stages, going on from a checkpoint, the exported draft, the held-out figures."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from draftsmith.builder.draft.checkpoint import DraftCheckpoint
from draftsmith.builder.draft.open import open_draft
from draftsmith.builder.errors import BuildError
from draftsmith.builder.progress import Silent
from draftsmith.builder.train.held_out import _chains
from draftsmith.builder.train.loop import TrainingLoop
from draftsmith.builder.train.plan import TrainPlan
from draftsmith.builder.train.run import open_run, train_draft
from draftsmith.builder.train.schedule import learning_rate_factor, run_progress
from draftsmith.builder.train.text import TrainingText
from draftsmith.builder.train.writing import load_texts, write_texts
from draftsmith.plugins.packing import round_rows

from tests.builder.train.tiny_target import tiny_settings
from tests.tiny_models import write_tiny_checkpoint


def _plan(folder: Path, architecture: str, **changes: object) -> TrainPlan:
    write_tiny_checkpoint(folder / "target", architecture)
    (folder / "out").mkdir()
    return TrainPlan(
        checkpoint=folder / "target",
        folder=folder / "out",
        settings=tiny_settings(**changes),
        device="cpu",
        devices=1,
        stages=("text", "train", "ranking"),
        resume=False,
    )


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_a_trained_draft_is_opened_as_what_was_trained(tmp_path: Path, architecture: str) -> None:
    plan = _plan(tmp_path, architecture)

    figures = train_draft(plan, Silent())

    run = open_run(plan)
    TrainingLoop(run, Accelerator(cpu=True)).resume()
    draft = open_draft(plan.folder / "draft", run.target.spec)
    assert isinstance(draft, DraftCheckpoint)
    assert draft.format == "specvocab"
    assert draft.spec == run.model.spec
    expected = run.model.linears["gate_proj"].detach().numpy()
    np.testing.assert_allclose(draft.weights.read("gate_proj.weight"), expected, atol=1e-3)
    assert draft.ranking is not None
    assert draft.ranking.vocabulary.shape == (run.target.spec.vocab_size, 8)
    assert figures["steps"] == 6
    assert set(figures["ranking"]) == {"joint", "closed form", "frozen draft"}
    assert json.loads((plan.folder / "figures.json").read_text())["steps"] == 6
    assert (plan.folder / "curve.svg").read_text().startswith("<svg")


def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(tmp_path: Path) -> None:
    plan = _plan(tmp_path, "llama")
    write_texts(plan, Silent())
    whole = open_run(plan)
    TrainingLoop(whole, Accelerator(cpu=True)).train(Silent().stage(""))
    parts = open_run(plan)
    TrainingLoop(parts, Accelerator(cpu=True)).train(Silent().stage(""), until_step=4)

    again = open_run(plan)
    loop = TrainingLoop(again, Accelerator(cpu=True))
    assert loop.resume()
    assert loop.state.step == 4
    loop.train(Silent().stage(""))

    for (name, expected), found in zip(whole.model.named_parameters(), again.model.parameters(), strict=True):
        assert torch.equal(found, expected), name


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    plan = _plan(tmp_path, "llama", max_steps=31, learning_rate=4e-3, ranking_start=1.0)
    write_texts(plan, Silent())
    TrainingLoop(open_run(plan), Accelerator(cpu=True)).train(Silent().stage(""))

    lines = (plan.folder / "curve.csv").read_text().splitlines()
    losses = [float(line.split(",")[3]) for line in lines[1:]]

    assert losses[-1] < losses[0] - 0.2


def test_the_text_of_a_resumed_run_is_not_written_again(tmp_path: Path) -> None:
    plan = _plan(tmp_path, "llama")
    write_texts(plan, Silent())
    first = load_texts(plan.folder)

    write_texts(replace(plan, resume=True, settings=tiny_settings(seed=9)), Silent())

    again = load_texts(plan.folder)

    assert [text.token_ids.shape[1] for text in first] == [73, 101]
    for one, other in zip(again, first, strict=True):
        np.testing.assert_array_equal(one.token_ids, other.token_ids)


def test_accepted_chains_by_hand() -> None:
    text = TrainingText(
        token_ids=np.zeros((1, 12), np.int32),
        roles=np.full((1, 12), 2, np.uint8),
        lengths=np.array([12], np.int32),
        temperatures=np.zeros(1, np.float32),
    )
    hits = np.ones((7, 1, 11), bool)
    hits[0, 0, 1] = False  # the chain from entry 1 fails at once
    hits[2, 0, 4] = False  # and that from entry 2 in its third step

    starts, alive = _chains(text, hits)

    assert starts == 4  # entries 0 to 3: seven drafts fit behind them
    assert alive.tolist() == [3, 3, 2, 2, 2, 2, 2]


def test_int8_rows_are_within_half_a_step() -> None:
    matrix = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)

    codes, scales = round_rows(matrix)

    assert codes.dtype == np.int8
    assert float(np.abs(codes * scales[:, None] - matrix).max()) <= float(scales.max()) / 2 + 1e-6


def test_the_schedule_follows_steps_or_the_clock() -> None:
    assert run_progress(5, 10, 2.0, 0.0) == 0.5
    assert run_progress(5, 10, 9.0, 10.0) == 0.9
    assert learning_rate_factor(0.0, 0, 10) == pytest.approx(0.1)
    assert learning_rate_factor(1.0, 100, 10) == pytest.approx(0.02)


def test_a_ranking_needs_a_trained_draft(tmp_path: Path) -> None:
    plan = _plan(tmp_path, "llama")
    write_texts(plan, Silent())

    with pytest.raises(BuildError, match=r"trained draft: expected checkpoint\.pt, found none"):
        train_draft(replace(plan, stages=("ranking",)), Silent())


def test_training_needs_text_and_leaves_no_folder_without(tmp_path: Path) -> None:
    plan = replace(_plan(tmp_path, "llama"), stages=("train",), folder=tmp_path / "new")

    with pytest.raises(BuildError, match=r"training text: expected text\.npz, found none"):
        train_draft(plan, Silent())

    assert not plan.folder.exists()
