"""CachedAttention: near the float64 reference, the same bits in every instruction set and grouping."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from draftsmith.plugins.cpu_reference import (
    AttentionFacts,
    AttentionInputs,
    cached_attention,
    restore_keys,
    transpose_keys,
)

from tests.plugins.conftest import KERNELS, Run, random_floats
from tests.plugins.test_row_operators import same_everywhere

CAPACITY = 448
UNUSED = np.float32(777)


@dataclass(frozen=True)
class Case:
    """Sizes and arrays of one call; rows have ``pasts`` cached tokens and ``lengths`` new ones of ``num_tokens``."""

    facts: AttentionFacts
    dim: int
    pasts: tuple[int, ...]
    lengths: tuple[int, ...]
    num_tokens: int
    tree_mask: npt.NDArray[np.bool_] | None = None
    norms: bool = False

    @property
    def qkv(self) -> npt.NDArray[np.float32]:
        heads = self.facts.num_heads + 2 * self.facts.num_kv_heads
        return random_floats(1, len(self.pasts), self.num_tokens, heads * self.dim)

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        mask = np.tril(np.ones((self.num_tokens, self.num_tokens), np.bool_))
        return np.stack([mask if self.tree_mask is None else self.tree_mask] * len(self.pasts))

    @property
    def positions(self) -> npt.NDArray[np.int32]:
        depth = self.mask.sum(axis=2) - 1
        return (np.array(self.pasts)[:, None] + depth).astype(np.int32)

    @property
    def cache(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        shape = (len(self.pasts), self.facts.num_kv_heads, CAPACITY, self.dim)
        keys, values = random_floats(2, *shape), random_floats(3, *shape)
        for row, past in enumerate(self.pasts):
            keys[row, :, past:] = values[row, :, past:] = UNUSED
        return keys, values

    @property
    def tables(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        angles = random_floats(4, CAPACITY, self.dim // 2)
        return np.cos(angles), np.sin(angles)

    def inputs(self) -> list[Any]:
        keys, values = self.cache
        norms = [random_floats(s, self.dim) if self.norms else None for s in (5, 6)]
        lengths = [np.array(x, np.int32) for x in (self.pasts, self.lengths)]
        return [self.qkv, transpose_keys(keys), values, self.positions, *lengths, self.mask, *self.tables, *norms]

    def attributes(self) -> dict[str, Any]:
        names = ("num_heads", "num_kv_heads", "window", "scale", "epsilon")
        return {name: getattr(self.facts, name) for name in names}


def check_against_reference(case: Case, outputs: list[npt.NDArray[np.float32]]) -> None:
    y, keys, values = outputs
    cached_keys, cached_values = case.cache
    for row, (past, length) in enumerate(zip(case.pasts, case.lengths, strict=True)):
        given = AttentionInputs(
            qkv=case.qkv[row, :length].astype(np.float64),
            keys=cached_keys[row, :, :past].astype(np.float64),
            values=cached_values[row, :, :past].astype(np.float64),
            positions=case.positions[row, :length],
            tree_mask=case.mask[row, :length, :length],
            cos=case.tables[0].astype(np.float64),
            sin=case.tables[1].astype(np.float64),
            q_norm=random_floats(5, case.dim) if case.norms else None,
            k_norm=random_floats(6, case.dim) if case.norms else None,
        )
        expected, new_keys, new_values = cached_attention(case.facts, given)
        np.testing.assert_allclose(y[row, :length], expected, rtol=2e-5, atol=3e-6)
        np.testing.assert_array_equal(y[row, length:], 0)
        np.testing.assert_allclose(restore_keys(keys)[row, :, : past + length], new_keys, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(values[row, :, : past + length], new_values.astype(np.float32))
        np.testing.assert_array_equal(restore_keys(keys)[row, :, past + length :], UNUSED)
        np.testing.assert_array_equal(values[row, :, past + length :], UNUSED)


def facts(num_heads: int, num_kv_heads: int, **options: Any) -> AttentionFacts:
    return AttentionFacts(num_heads=num_heads, num_kv_heads=num_kv_heads, scale=0.2, **options)


TREE = np.array([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 1, 0, 1]], np.bool_)
CASES = {
    "first tokens": Case(facts(2, 1), 64, (0,), (3,), 3),
    "one token": Case(facts(9, 3), 64, (100,), (1,), 1),
    "ragged rows": Case(facts(6, 2), 32, (0, 130, 300), (4, 1, 3), 4),
    "ends of blocks": Case(facts(2, 2), 16, (127, 128, 255), (2, 1, 2), 2),
    "a row without tokens": Case(facts(2, 1), 16, (5, 9), (2, 0), 2),
    "a tree": Case(facts(4, 2), 64, (126, 20), (5, 5), 5, tree_mask=TREE),
    "norms of heads": Case(facts(8, 1), 128, (140,), (7,), 7, norms=True),
    "head size 256": Case(facts(4, 1), 256, (130,), (2,), 2, norms=True),
    "odd head sizes": Case(facts(3, 3), 20, (40,), (3,), 3),
    "head size 80": Case(facts(2, 1), 80, (200,), (9,), 9),
    "a window": Case(facts(4, 1, window=20), 32, (7, 150, 400), (6, 6, 6), 6),
    "a window in a tree": Case(facts(4, 2, window=3), 16, (300,), (5,), 5, tree_mask=TREE),
    "a prompt": Case(facts(6, 2), 32, (33,), (130,), 130),
}


@pytest.mark.parametrize("name", CASES)
def test_attention_is_near_the_reference_with_the_same_bits_everywhere(name: str, run_operator: Run) -> None:
    case = CASES[name]

    outputs = same_everywhere(run_operator, "CachedAttention", case.inputs(), num_returned=3, **case.attributes())

    check_against_reference(case, outputs)


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_block_has_the_bits_of_its_tokens_one_by_one(kernels: str, run_operator: Run) -> None:
    case = Case(facts(6, 2), 32, (120,), (17,), 17)
    together, *_ = run_operator(kernels, "CachedAttention", case.inputs(), 3, **case.attributes())
    qkv, keys, values, positions, _, _, _, *tables = case.inputs()

    for t in range(17):
        lengths = [np.array([x], np.int32) for x in (120 + t, 1)]
        inputs = [qkv[:, t : t + 1], keys, values, positions[:, t : t + 1], *lengths, np.ones((1, 1, 1), np.bool_)]
        alone, keys, values = run_operator(kernels, "CachedAttention", [*inputs, *tables], 3, **case.attributes())
        np.testing.assert_array_equal(alone[:, 0], together[:, t])


def test_rows_do_not_change_each_other(run_operator: Run) -> None:
    case = CASES["ragged rows"]
    together, *_ = run_operator("generic", "CachedAttention", case.inputs(), 3, **case.attributes())

    for row in range(3):
        inputs = [a if i in (7, 8) or a is None else a[row : row + 1] for i, a in enumerate(case.inputs())]
        alone, *_ = run_operator("generic", "CachedAttention", inputs, 3, **case.attributes())
        np.testing.assert_array_equal(alone[0], together[row])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pasts": (CAPACITY - 1,)}, "expected lengths that fit"),
        ({"lengths": (4,)}, "expected lengths that fit"),
        ({"pasts": (-1,)}, "expected lengths that fit"),
    ],
)
def test_lengths_beyond_the_cache_are_refused(change: dict[str, Any], message: str, run_operator: Run) -> None:
    case = replace(Case(facts(2, 1), 16, (5,), (3,), 3), **change)
    inputs = case.inputs()
    inputs[3] = np.zeros((1, 3), np.int32)

    with pytest.raises(Exception, match=message):
        run_operator("generic", "CachedAttention", inputs, 3, **case.attributes())


def test_positions_outside_the_tables_are_refused(run_operator: Run) -> None:
    case = Case(facts(2, 1), 16, (5,), (3,), 3)
    inputs = case.inputs()
    inputs[3] = np.full((1, 3), CAPACITY, np.int32)

    with pytest.raises(Exception, match="expected positions inside the rotary table"):
        run_operator("generic", "CachedAttention", inputs, 3, **case.attributes())
