"""CachedAttention on trees: each token has the bits that it gets when its path is decoded token by token."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
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
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Forest:
    """A tree for each sequence behind ``starts`` cached tokens: ``parents`` [B, nodes], -1 for the last cached one."""

    facts: AttentionFacts
    dim: int
    starts: tuple[int, ...]
    parents: npt.NDArray[np.int64]

    @property
    def num_nodes(self) -> int:
        return self.parents.shape[1]

    @property
    def mask(self) -> Mask:
        """[B, nodes, nodes]: ancestors and the node itself."""
        mask = np.stack([np.eye(self.num_nodes, dtype=np.bool_)] * len(self.starts))
        for row, parents in enumerate(self.parents):
            for node, parent in enumerate(parents):
                if parent >= 0:
                    mask[row, node] |= mask[row, parent]
        return mask

    @property
    def positions(self) -> npt.NDArray[np.int32]:
        return (np.array(self.starts)[:, None] + self.mask.sum(axis=2) - 1).astype(np.int32)

    @property
    def qkv(self) -> Floats:
        heads = self.facts.num_heads + 2 * self.facts.num_kv_heads
        return random_floats(1, len(self.starts), self.num_nodes, heads * self.dim)

    @property
    def cache(self) -> list[Floats]:
        shape = (len(self.starts), self.facts.num_kv_heads, CAPACITY, self.dim)
        return [transpose_keys(random_floats(2, *shape)), random_floats(3, *shape)]

    @property
    def tables(self) -> list[Floats]:
        angles = random_floats(4, CAPACITY, self.dim // 2)
        return [np.cos(angles), np.sin(angles)]

    @property
    def attributes(self) -> dict[str, Any]:
        names = ("num_heads", "num_kv_heads", "window", "scale", "epsilon")
        return {name: getattr(self.facts, name) for name in names}

    def inputs(self, first: int, last: int, cache: Sequence[Floats]) -> list[Any]:
        """A step of the nodes [first, last), those before them cached."""
        past = np.array(self.starts, np.int32) + np.int32(first)
        lengths = np.full(len(self.starts), last - first, np.int32)
        mask = np.ascontiguousarray(self.mask[:, first:last, :last])
        block = (self.qkv[:, first:last].copy(), *cache, self.positions[:, first:last].copy())
        return [*block, past, lengths, mask, *self.tables]

    def step(self, run: Run, kernels: str, first: int, last: int, cache: Sequence[Floats]) -> list[Floats]:
        outputs: list[Floats] = run(kernels, "CachedAttention", self.inputs(first, last, cache), 3, **self.attributes)
        return outputs

    def decode(self, run: Run, kernels: str) -> Floats:
        """Outputs [B, nodes, H D] of plain decoding: a sequence for each node, one token of its path a step."""
        rows, nodes = self.parents.shape
        cache = [np.repeat(array, nodes, axis=0) for array in self.cache]
        paths = [np.flatnonzero(seen) for seen in self.mask.reshape(rows * nodes, nodes)]
        starts = np.repeat(np.array(self.starts, np.int32), nodes)
        result = np.zeros((rows * nodes, self.facts.num_heads * self.dim), np.float32)
        for depth in range(max(map(len, paths))):
            lengths = np.array([depth < len(path) for path in paths], np.int32)
            tokens = [path[min(depth, len(path) - 1)] for path in paths]
            qkv = self.qkv.reshape(rows, nodes, -1)[np.arange(rows).repeat(nodes), tokens][:, None]
            block = [qkv, *cache, (starts + depth)[:, None], starts + np.int32(depth), lengths]
            mask = np.ones((rows * nodes, 1, 1), np.bool_)
            y, *cache = run(kernels, "CachedAttention", [*block, mask, *self.tables], 3, **self.attributes)
            result = np.where(lengths[:, None] > 0, y[:, 0], result)
        return result.reshape(rows, nodes, -1)


def random_forest(seed: int, facts: AttentionFacts, dim: int, starts: tuple[int, ...], num_nodes: int) -> Forest:
    """Trees with a few roots, as deep as they come."""
    random = np.random.default_rng(seed)
    parents = [[int(random.integers(max(-1, node - 5), node)) for node in range(num_nodes)] for _ in starts]
    return Forest(facts, dim, starts, np.array(parents))


def facts(num_heads: int, num_kv_heads: int, window: int = 0) -> AttentionFacts:
    return AttentionFacts(num_heads=num_heads, num_kv_heads=num_kv_heads, scale=0.1, window=window)


def assert_same_bits(found: Floats, expected: Floats) -> None:
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


FORESTS = {
    "behind nothing": random_forest(1, facts(6, 2), 32, (0, 1), 20),
    "at groups of 16": random_forest(2, facts(9, 3), 64, (15, 16, 17, 31, 33), 17),
    "into the next block": random_forest(3, facts(9, 3), 64, (112, 120, 127, 128, 129), 16),
    "with the next block's end": random_forest(4, facts(2, 2), 16, (100, 250), 150),
    "a window": random_forest(5, facts(6, 2, window=9), 32, (3, 121, 128, 254), 24),
    "a window across blocks": random_forest(6, facts(4, 1, window=130), 32, (127, 200, 250), 24),
    "odd head size": random_forest(7, facts(3, 3), 20, (60, 126), 12),
    "head size 80": random_forest(8, facts(14, 2), 80, (125, 255), 13),
    "head size 256": random_forest(9, facts(4, 1), 256, (30, 383), 9),
    "several tiles": random_forest(10, facts(32, 1), 16, (120,), 9),
}


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("name", FORESTS)
def test_trees_have_the_bits_of_their_paths_decoded(name: str, kernels: str, run_operator: Run) -> None:
    """In one step, and in levels of which each sees the cached ones before it."""
    forest = FORESTS[name]
    expected = forest.decode(run_operator, kernels)
    borders = [0, 1, 3, forest.num_nodes // 2, forest.num_nodes]

    whole, *_ = forest.step(run_operator, kernels, 0, forest.num_nodes, forest.cache)
    cache, levels = forest.cache, []
    for first, last in pairwise(borders):
        y, *cache = forest.step(run_operator, kernels, first, last, cache)
        levels.append(y)

    assert_same_bits(whole, expected)
    assert_same_bits(np.concatenate(levels, axis=1), expected)


@pytest.mark.parametrize("start", [*range(14, 18), *range(30, 34), *range(110, 131), *range(248, 258)])
def test_trees_at_every_offset_of_a_block(start: int, run_operator: Run) -> None:
    forest = random_forest(start, facts(3, 1, window=start % 3 * 20), 16, (start, start // 2), 14)
    expected = forest.decode(run_operator, "")

    y, *cache = forest.step(run_operator, "", 0, 5, forest.cache)
    assert_same_bits(y, expected[:, :5])
    y, *_ = forest.step(run_operator, "", 5, 14, cache)
    assert_same_bits(y, expected[:, 5:])


@pytest.mark.parametrize("first", [0, 7])
@pytest.mark.parametrize("name", FORESTS)
def test_trees_are_near_the_reference_with_the_same_bits_everywhere(name: str, first: int, run_operator: Run) -> None:
    forest, cache = FORESTS[name], FORESTS[name].cache
    if first:
        _, *cache = forest.step(run_operator, "generic", 0, first, cache)
    inputs = forest.inputs(first, forest.num_nodes, cache)

    y, *_ = same_everywhere(run_operator, "CachedAttention", inputs, num_returned=3, **forest.attributes)

    for row, start in enumerate(forest.starts):
        given = AttentionInputs(
            qkv=inputs[0][row].astype(np.float64),
            keys=restore_keys(cache[0])[row, :, : start + first].astype(np.float64),
            values=cache[1][row, :, : start + first].astype(np.float64),
            positions=inputs[3][row],
            tree_mask=inputs[6][row],
            cos=forest.tables[0].astype(np.float64),
            sin=forest.tables[1].astype(np.float64),
        )
        np.testing.assert_allclose(y[row], cached_attention(forest.facts, given)[0], rtol=2e-5, atol=5e-6)


def test_padding_leaves_no_trace_and_its_mask_is_not_read(run_operator: Run) -> None:
    forest = random_forest(11, facts(4, 2), 16, (126, 40), 12)
    cache = forest.cache
    together, *_ = forest.step(run_operator, "generic", 0, 12, cache)
    inputs = forest.inputs(0, 12, cache)
    inputs[5] = np.array([12, 7], np.int32)
    inputs[0][1, 7:], inputs[6][1, 7:], inputs[3][1, 7:] = np.nan, False, CAPACITY + 9

    y, keys, values = run_operator("generic", "CachedAttention", inputs, 3, **forest.attributes)

    assert_same_bits(y[0], together[0])
    assert_same_bits(y[1, :7], together[1, :7])
    np.testing.assert_array_equal(y[1, 7:], 0)
    np.testing.assert_array_equal(restore_keys(keys)[1, :, 47:], restore_keys(cache[0])[1, :, 47:])
    np.testing.assert_array_equal(values[1, :, 47:], cache[1][1, :, 47:])


def test_cached_columns_that_no_token_sees_may_hold_anything(run_operator: Run) -> None:
    forest = random_forest(12, facts(4, 2), 16, (120, 125), 12)
    _, *cache = forest.step(run_operator, "generic", 0, 6, forest.cache)
    inputs = forest.inputs(6, 12, cache)
    unseen = ~inputs[6].any(axis=1)
    expected, *_ = run_operator("generic", "CachedAttention", inputs, 3, **forest.attributes)
    keys, values = restore_keys(inputs[1]), inputs[2].copy()
    for row, start in enumerate(forest.starts):
        for array in (keys, values):
            array[row, :, start + np.flatnonzero(unseen[row])] = np.nan
    inputs[1:3] = transpose_keys(keys), values

    y, *_ = run_operator("generic", "CachedAttention", inputs, 3, **forest.attributes)

    assert unseen.any()
    assert_same_bits(y, expected)


def test_a_mask_may_begin_before_the_cache_where_nothing_is_seen(run_operator: Run) -> None:
    """A row with fewer cached levels than the longest one of its batch."""
    forest = random_forest(13, facts(2, 1), 16, (0,), 4)
    expected, *_ = forest.step(run_operator, "generic", 0, 4, forest.cache)
    inputs = forest.inputs(0, 4, forest.cache)
    inputs[6] = np.concatenate([np.zeros((1, 4, 3), np.bool_), inputs[6]], axis=2)

    y, *_ = run_operator("generic", "CachedAttention", inputs, 3, **forest.attributes)

    assert_same_bits(y, expected)


def refused(run: Run, mask: Mask) -> str:
    forest = random_forest(14, facts(2, 1), 16, (2,), 3)
    inputs = forest.inputs(0, 3, forest.cache)
    inputs[6] = mask
    with pytest.raises(Exception, match="CachedAttention") as caught:
        run("generic", "CachedAttention", inputs, 3, **forest.attributes)
    return str(caught.value)


def test_masks_that_cannot_be_are_refused(run_operator: Run) -> None:
    blind = np.tri(3, dtype=np.bool_)[None].copy()
    blind[0, 1, 1] = False
    outside = np.concatenate([np.ones((1, 3, 3), np.bool_), np.tri(3, dtype=np.bool_)[None]], axis=2)

    assert "expected a tree_mask in which each token sees itself" in refused(run_operator, blind)
    assert "expected a tree_mask of columns that are in the cache" in refused(run_operator, outside)
    for shape in ((1, 3, 2), (1, 2, 3), (2, 3, 3), (3, 3)):
        message = refused(run_operator, np.ones(shape, np.bool_))
        assert "expected tree_mask [B, T, U] with U at least T" in message
