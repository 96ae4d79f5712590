"""Tables of a draft that are the target's again are borrowed; others stay, and are told where nothing is alike."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from draftsmith.builder.checkpoint.source import Checkpoint, open_checkpoint
from draftsmith.builder.draft.checkpoint import DraftCheckpoint
from draftsmith.builder.draft.open import open_draft
from draftsmith.builder.drafting.share import relative_distance, share_equal_tables

from tests.tiny_draft_formats import HIDDEN, VOCAB_SIZE, write_tiny_draft

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.fixture
def target(tiny_checkpoint: Callable[..., Path]):
    with open_checkpoint(tiny_checkpoint("llama", tie_word_embeddings=False)) as opened:
        yield opened


def share(folder: Path, target: Checkpoint, **extra: np.ndarray) -> DraftCheckpoint:
    names = {"embedding": "embed_tokens.weight", "head": "lm_head.weight"}
    stored = {names[name]: array for name, array in extra.items()}
    drop = [] if "head" in extra else ["lm_head.weight"]
    opened = open_draft(write_tiny_draft(folder, "specforge", extra=stored, drop=drop), target.spec)
    assert isinstance(opened, DraftCheckpoint)
    return share_equal_tables(opened, target)


def test_a_copy_of_the_targets_tables_is_borrowed(target: Checkpoint, tmp_path: Path) -> None:
    rounded = target.weights.read(EMBEDDING).astype(np.float16)
    draft = share(tmp_path, target, embedding=rounded, head=target.weights.read(HEAD))
    assert not draft.spec.own_embedding and not draft.spec.own_head
    said = [choice for choice in draft.choices if "is the target's again" in choice]
    assert [sentence.split(":")[0] for sentence in said] == ["embed_tokens", "lm_head"]


def test_a_trained_table_is_the_drafts_own(target: Checkpoint, tmp_path: Path) -> None:
    table = target.weights.read(EMBEDDING)
    moved = table + 0.1 * table.std() * np.random.default_rng(0).normal(size=table.shape).astype(np.float32)
    draft = share(tmp_path, target, embedding=moved)
    assert draft.spec.own_embedding
    assert not any("again" in choice or "at random" in choice for choice in draft.choices)


def test_a_table_of_random_numbers_is_told(target: Checkpoint, tmp_path: Path) -> None:
    """TorchSpec 38: an exporter that saves a fresh embedding."""
    random = np.random.default_rng(99).normal(0, 0.02, (VOCAB_SIZE, HIDDEN)).astype(np.float32)
    draft = share(tmp_path, target, embedding=random)
    assert draft.spec.own_embedding
    assert any(c.startswith("embed_tokens: unlike the target's") and "at random" in c for c in draft.choices)


def test_distances_by_hand() -> None:
    expected = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    assert relative_distance(expected.copy(), expected) == 0
    assert relative_distance(expected + 1, expected) == pytest.approx(4 / 25)
    assert relative_distance(expected, np.zeros_like(expected)) == float("inf")
