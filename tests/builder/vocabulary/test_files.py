"""Rankings and subsets survive their files, and what does not belong is refused by name."""

from dataclasses import replace

import numpy as np
import pytest
from draftsmith.builder.errors import CheckpointError
from draftsmith.builder.spec.ranking import Ranking
from draftsmith.builder.vocabulary.files import (
    is_subset_file,
    load_ranking,
    load_subset,
    make_facts,
    save_ranking,
    save_subset,
)
from draftsmith.plugins.packing import round_rows
from safetensors.numpy import save_file

FACTS = make_facts("a" * 64, "my-draft", 40, {"recall": {"recall": 0.98}})


def make_ranking() -> Ranking:
    random = np.random.default_rng(0)
    vocabulary = random.normal(size=(40, 3)).astype(np.float32)
    vocabulary[7] = 0
    return Ranking(down=random.normal(size=(3, 16)).astype(np.float32), vocabulary=vocabulary, num_candidates=8)


def test_a_ranking_comes_back_and_is_not_rounded_twice(tmp_path):
    path, again = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    ranking = make_ranking()
    save_ranking(path, ranking, FACTS)
    loaded, facts = load_ranking(path, target_sha256="a" * 64)
    assert facts == FACTS
    assert (loaded.num_candidates, loaded.rank, loaded.is_exact, loaded.groups) == (8, 3, True, None)
    np.testing.assert_array_equal(loaded.down, ranking.down)
    half_step = np.abs(ranking.vocabulary).max(axis=1, keepdims=True) / 254
    assert (np.abs(loaded.vocabulary - ranking.vocabulary) <= half_step * 1.001).all()
    save_ranking(again, loaded, facts)
    np.testing.assert_array_equal(load_ranking(again)[0].vocabulary, loaded.vocabulary)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.safetensors", "b.safetensors"]


def test_groups_and_prior_come_back(tmp_path):
    groups = np.concatenate([np.arange(40), [-1, -1]]).reshape(14, 3).astype(np.int32)
    ranking = replace(
        make_ranking(),
        vocabulary=np.ones((14, 3), np.float32),
        groups=groups,
        prior=np.arange(14, dtype=np.float32),
        is_exact=False,
    )
    save_ranking(tmp_path / "a.safetensors", ranking, FACTS)
    loaded, _ = load_ranking(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(loaded.groups, groups)
    np.testing.assert_array_equal(loaded.prior, np.arange(14))
    assert not loaded.is_exact


def test_another_target_is_named(tmp_path):
    save_ranking(tmp_path / "a.safetensors", make_ranking(), FACTS)
    with pytest.raises(CheckpointError, match=f"expected sha256 {'b' * 64}, found sha256 {'a' * 64}"):
        load_ranking(tmp_path / "a.safetensors", target_sha256="b" * 64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocabulary": np.ones((39, 3), np.float32)}, "`vocabulary`: expected 40 rows, found 39"),
        ({"down": np.ones((2, 16), np.float32)}, "`down`: expected 3 rows, found 2"),
        ({"down": np.full((3, 16), np.nan, np.float32)}, "`down`: expected finite numbers"),
        ({"prior": np.ones(5, np.float32)}, "`prior`: expected 40 numbers, found 5"),
        ({"num_candidates": 41}, "k 41 of 40"),
        ({"groups": np.zeros((40, 1), np.int32)}, "`groups`: expected every id once, found 40 ids, 1 distinct"),
        ({"groups": np.arange(40, dtype=np.int32)[:, None] + 1}, "`groups`: expected ids 0 to 39, found 1 to 40"),
    ],
)
def test_a_damaged_ranking_is_refused(tmp_path, change, message):
    save_ranking(tmp_path / "a.safetensors", replace(make_ranking(), **change), FACTS)
    with pytest.raises(CheckpointError, match=message):
        load_ranking(tmp_path / "a.safetensors")


def test_files_of_another_kind_are_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"not one")
    with pytest.raises(CheckpointError, match="ranking file: expected a safetensors file"):
        load_ranking(path)
    with pytest.raises(CheckpointError, match="ranking file: expected a safetensors file"):
        load_ranking(tmp_path / "missing.safetensors")
    save_file({"down": np.ones((1, 1), np.float32)}, str(path))
    with pytest.raises(CheckpointError, match="expected draftsmith-ranking 1, found another file"):
        load_ranking(path)
    save_subset(path, np.array([1, 2], np.int32), FACTS)
    with pytest.raises(CheckpointError, match="expected draftsmith-ranking 1, found draftsmith-subset 1"):
        load_ranking(path)


@pytest.mark.parametrize("name", ["ids.npy", "ids.safetensors"])
def test_a_subset_comes_back(tmp_path, name):
    save_subset(tmp_path / name, np.array([3, 1, 39], np.int32), FACTS)
    ids, facts = load_subset(tmp_path / name, vocab_size=40)
    np.testing.assert_array_equal(ids, [3, 1, 39])
    assert ids.dtype == np.int32
    assert facts == (None if name.endswith("npy") else FACTS)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.array([1, 40]), "expected ids 0 to 39, found 1 to 40"),
        (np.array([-1, 4]), "expected ids 0 to 39, found -1 to 4"),
        (np.array([4, 4]), "expected each id once, found 2 ids, 1 distinct"),
        (np.array([[4]]), r"expected whole numbers \[n\]"),
        (np.array([1.5]), r"expected whole numbers \[n\]"),
        (np.array([], np.int32), r"expected whole numbers \[n\]"),
    ],
)
def test_ids_that_are_no_subset_are_refused(tmp_path, ids, message):
    np.save(tmp_path / "ids.npy", ids)
    with pytest.raises(CheckpointError, match=message):
        load_subset(tmp_path / "ids.npy", vocab_size=40)


def test_codes_by_hand():
    codes, scales = round_rows(np.array([[1.27, -0.635, 0.0], [0, 0, 0]], np.float32))
    np.testing.assert_array_equal(codes, [[127, -64, 0], [0, 0, 0]])  # -63.5 goes to the even -64
    np.testing.assert_allclose(scales, [0.01, 0])


@pytest.mark.parametrize("content", [b"", b"\x10\x00\x00\x00\x00\x00\x00\x00{"])
def test_a_damaged_vocabulary_file_is_named_before_its_kind_is_known(tmp_path, content):
    path = tmp_path / "damaged.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"vocabulary file: expected a safetensors file, found .*damaged"):
        is_subset_file(path)
