"""A8: offsets, direct ids and a mask give the same target ids; what is missing, double or out of range is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from draftsmith.builder.draft.checkpoint import DraftCheckpoint
from draftsmith.builder.draft.open import open_draft
from draftsmith.builder.errors import CheckpointError
from draftsmith.builder.model import read_model_spec

from tests.tiny_draft_formats import FORMATS, HIDDEN, VOCAB_SIZE, write_tiny_draft
from tests.tiny_models import tiny_config

TARGET = read_model_spec(tiny_config("llama"), "config.json")
TOKENS = [2, 5, 9, 300]
OFFSETS = np.array([2, 4, 7, 297], np.int64)  # target = row + offset
MASK = np.isin(np.arange(VOCAB_SIZE), TOKENS)
SUBSET_FORMATS = [name for name in FORMATS if name != "specvocab"]
Maps = dict[str, npt.NDArray[Any]]


def read_ids(folder: Path, name: str, maps: Maps, *, rows: int = 4) -> DraftCheckpoint:
    draft = open_draft(write_tiny_draft(folder, name, head_rows=rows, extra=maps), TARGET)
    assert isinstance(draft, DraftCheckpoint)
    return draft


@pytest.mark.parametrize("name", SUBSET_FORMATS)
@pytest.mark.parametrize(
    "maps",
    [
        {"d2t": OFFSETS},
        {"d2t": OFFSETS.astype(np.int32), "t2d": MASK},
        {"t2d": MASK},
        {"t2d": MASK.astype(np.uint8)},
        {"vocab_map": np.array(TOKENS, np.int32)},
        {"d2t": np.array(TOKENS, np.int64), "t2d": MASK},
        {"draft_id_to_target_id": OFFSETS},
    ],
    ids=["offsets", "offsets and mask", "mask", "mask of bytes", "direct ids", "direct ids in d2t", "vllm's name"],
)
def test_each_way_to_store_the_map_gives_the_same_target_ids(name: str, maps: Maps, tmp_path: Path) -> None:
    draft = read_ids(tmp_path, name, maps)
    assert draft.target_ids is not None and draft.target_ids.dtype == np.int32
    assert draft.target_ids.tolist() == TOKENS
    assert draft.spec.head_vocab_size == 4


def test_guesses_about_the_map_are_told(tmp_path: Path) -> None:
    draft = read_ids(tmp_path / "a", "eagle3", {"d2t": np.array(TOKENS, np.int64), "t2d": MASK})
    assert any("direct target ids" in choice for choice in draft.choices)
    draft = read_ids(tmp_path / "b", "eagle3", {"t2d": MASK})
    assert any("mask" in choice for choice in draft.choices)
    assert not any("d2t" in choice for choice in read_ids(tmp_path / "c", "eagle3", {"d2t": OFFSETS}).choices)


@pytest.mark.parametrize(
    ("maps", "words"),
    [
        ({}, "a map from the head's 4 rows to the target's 305 tokens, found neither d2t"),
        ({"d2t": np.array([0, 0, 0, 302])}, r"`d2t`: expected target ids from 0 to 304, found 305 at row 3"),
        ({"d2t": np.array([-1, 0, 0, 0])}, r"`d2t`: expected target ids from 0 to 304, found -1 at row 0"),
        ({"d2t": np.array([1, 0, 0, 0])}, r"`d2t`: expected each target id once, found 1 at rows 0 and 1"),
        ({"d2t": np.array([2, 4, 7, 302])}, "found 305 at row 3"),
        ({"d2t": np.array([2, 1, 7, 297])}, "found 2 at rows 0 and 1"),
        ({"vocab_map": np.array([1, 2, 2, 3])}, r"`vocab_map`: expected each target id once, found 2 at rows 1 and 2"),
        ({"vocab_map": np.array([1, 2, 305, 3])}, "found 305 at row 2"),
        ({"d2t": np.zeros(4, np.int64), "t2d": MASK}, "`d2t`: expected the tokens of t2d"),
        ({"t2d": np.zeros(VOCAB_SIZE, bool)}, "`t2d`: expected 4 tokens, the head's rows, found 0"),
        ({"t2d": np.ones(VOCAB_SIZE - 1, bool)}, r"`t2d`: expected shape \[305\]"),
        ({"t2d": np.full(VOCAB_SIZE, 2, np.int64)}, "`t2d`: expected true or false, found 2"),
        ({"d2t": np.zeros(5, np.int64)}, r"`d2t`: expected shape \[4\], found \[5\]"),
        ({"d2t": OFFSETS.astype(np.float32)}, "`d2t`"),
        ({"d2t": OFFSETS, "vocab_map": np.array([2, 5, 9, 301])}, "`vocab_map`: expected the same tokens as d2t"),
        ({"d2t": OFFSETS, "draft_id_to_target_id": OFFSETS}, "`d2t`: expected one"),
    ],
)
def test_a_wrong_map_is_refused(maps: Maps, words: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=words):
        read_ids(tmp_path, "specforge", maps)


def test_a_permuting_map_keeps_its_order(tmp_path: Path) -> None:
    """C19: row 0 stands for token 4, row 1 for 0, ...: offsets 4, -1, 7, -2."""
    draft = read_ids(tmp_path / "a", "speculators", {"d2t": np.array([4, -1, 7, -2], np.int64)})
    assert draft.target_ids is not None and draft.target_ids.tolist() == [4, 0, 9, 1]
    permutation = np.random.default_rng(0).permutation(VOCAB_SIZE)
    maps = {"d2t": permutation - np.arange(VOCAB_SIZE), "t2d": np.ones(VOCAB_SIZE, bool)}
    whole = read_ids(tmp_path / "b", "eagle3", maps, rows=VOCAB_SIZE)
    assert whole.target_ids is not None
    np.testing.assert_array_equal(whole.target_ids, permutation)


def test_a_full_head_with_an_identity_map_needs_no_mapping(tmp_path: Path) -> None:
    draft = read_ids(tmp_path, "eagle3", {"d2t": np.zeros(VOCAB_SIZE, np.int64)}, rows=VOCAB_SIZE)
    assert draft.target_ids is None


def test_an_empty_mask_beside_a_head_of_all_rows_says_nothing(tmp_path: Path) -> None:
    """What a buffer that was never filled looks like."""
    draft = read_ids(tmp_path, "eagle3", {"t2d": np.zeros(VOCAB_SIZE, bool)}, rows=VOCAB_SIZE)
    assert draft.target_ids is None
    assert any("t2d is empty" in choice for choice in draft.choices)


def test_a_map_of_the_first_tokens_alone_is_told(tmp_path: Path) -> None:
    """vLLM and others align rows with the first ids where an exporter has lost the map (NeMo Automodel 2447)."""
    draft = read_ids(tmp_path, "specforge", {"d2t": np.zeros(4, np.int64)})
    assert draft.target_ids is not None and draft.target_ids.tolist() == [0, 1, 2, 3]
    assert any("first 4 tokens of 305" in choice for choice in draft.choices)


def test_a_mask_of_all_tokens_beside_a_subset_is_refused(tmp_path: Path) -> None:
    """SpecForge's buffer before it is filled."""
    with pytest.raises(CheckpointError, match=r"`t2d`: expected 4 tokens, the head's rows, found 305"):
        read_ids(tmp_path, "specforge", {"t2d": np.ones(VOCAB_SIZE, bool), "d2t": OFFSETS})


def test_offsets_that_look_like_ids_are_told(tmp_path: Path) -> None:
    ids = np.arange(0, 140, 2)  # as offsets: 0, 3, 6, ...
    draft = read_ids(tmp_path / "a", "specforge", {"d2t": ids}, rows=70)
    assert any("rename the tensor to vocab_map" in choice for choice in draft.choices)
    draft = read_ids(
        tmp_path / "b", "specforge", {"d2t": ids - np.arange(70), "t2d": np.isin(range(305), ids)}, rows=70
    )
    assert not any("vocab_map" in choice for choice in draft.choices)


def test_a_subset_without_a_head_gathers_the_targets_rows(tmp_path: Path) -> None:
    """A9: the head's rows are named by ``target_ids``; nothing is read in their place."""
    folder = write_tiny_draft(tmp_path, "specforge", head_rows=4, extra={"d2t": OFFSETS}, drop=["lm_head.weight"])
    draft = open_draft(folder, TARGET)
    assert isinstance(draft, DraftCheckpoint)
    assert not draft.spec.own_head and draft.target_ids is not None
    assert any("rows of the draft's tokens are gathered" in choice for choice in draft.choices)


def test_an_own_head_with_other_rows_than_the_map_is_refused(tmp_path: Path) -> None:
    extra = {"d2t": OFFSETS, "lm_head.weight": np.ones((5, HIDDEN), np.float32)}
    folder = write_tiny_draft(tmp_path, "specforge", head_rows=4, extra=extra)
    with pytest.raises(CheckpointError, match=r"`lm_head\.weight`: expected shape \[4, 64\], found \[5, 64\]"):
        open_draft(folder, TARGET)
