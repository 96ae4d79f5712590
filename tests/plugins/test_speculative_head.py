"""SpeculativeHead: exactly the reference's tokens and logits, in every instruction set, whatever threads and rows."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from draftsmith.plugins.candidate_reference import (
    BestTokens,
    HeadTables,
    project,
    ranking_scores,
    select_best,
    speculative_head,
)
from draftsmith.plugins.packing import PackedRanking, pack_ranking, pack_vocabulary

from tests.plugins.conftest import KERNELS, Run, random_floats

TYPES = (onnx.TensorProto.INT32, onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT)
Outputs = tuple[npt.NDArray[np.int32], npt.NDArray[np.float32], npt.NDArray[np.float32]]
SIZES = [(50, 70, 5, 7), (1000, 64, 36, 100), (20_011, 96, 40, 300), (9_000, 130, 3, 9_000), (17, 33, 1, 20)]


def make_tables(vocab: int, hidden: int, rank: int, seed: int = 0) -> HeadTables:
    """A head near the rank of its ranking, so that candidates are good."""
    left, down = random_floats(seed, vocab, rank), random_floats(seed + 1, rank, hidden) / np.float32(hidden**0.5)
    head = left @ down + 0.3 * random_floats(seed + 2, vocab, hidden) / np.float32(hidden**0.5)
    return HeadTables(down=down, ranking=pack_ranking(left), head=pack_vocabulary(head))


def run_head(
    run: Run,
    kernels: str,
    hidden: npt.NDArray[np.float32],
    tables: HeadTables,
    *,
    num_candidates: int = 64,
    num_outputs: int = 16,
    keys: list[int] | None = None,
    factors: list[float] | None = None,
    counts: list[int] | None = None,
    threads: int = 2,
) -> Outputs:
    """``hidden`` [M, d] as [1, M, d]; outputs without the first dimension."""
    rows = len(hidden)
    vocab = tables.ranking.num_outputs if tables.head is None else tables.head.num_outputs
    head = (None, None) if tables.head is None else (tables.head.weights, tables.head.scales)
    inputs: list[Any] = [
        hidden[None],
        tables.down,
        tables.ranking.weights,
        tables.ranking.scales,
        *head,
        tables.prior,
        tables.groups,
        np.array([keys or [0] * rows], np.int64),
        np.array([factors or [1.0] * rows], np.float32),
        np.array([counts or [0] * rows], np.int32),
    ]
    attributes = {"num_outputs": num_outputs, "num_candidates": num_candidates, "num_vocab": vocab}
    attributes["is_exact"] = int(tables.head is not None)
    ids, logits, sums = run(kernels, "SpeculativeHead", inputs, returned_types=TYPES, threads=threads, **attributes)
    return ids[0], logits[0], sums[0]


def expect(
    outputs: Outputs, row: int, hidden: npt.NDArray[np.float32], tables: HeadTables, *, k: int, **options: Any
) -> None:
    expected: BestTokens = speculative_head(
        hidden[row],
        tables,
        num_outputs=outputs[0].shape[1],
        num_candidates=k,
        factor=options.get("factor", 1.0),
        noise_key=options.get("noise_key", 0),
    )
    np.testing.assert_array_equal(outputs[0][row], expected.ids)
    np.testing.assert_array_equal(outputs[1][row], expected.logits)
    np.testing.assert_allclose(outputs[2][row], expected.log_sum_exp, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("sizes", SIZES)
def test_tokens_and_logits_are_those_of_the_reference(
    kernels: str, sizes: tuple[int, int, int, int], run_operator: Run
) -> None:
    vocab, hidden, rank, count = sizes
    tables, x = make_tables(vocab, hidden, rank), random_floats(9, 3, hidden)

    outputs = run_head(run_operator, kernels, x, tables, num_candidates=count, keys=[0, 77, -5], factors=[1, 0.7, 2])

    expect(outputs, 0, x, tables, k=count)
    expect(outputs, 1, x, tables, k=count, factor=0.7, noise_key=77)
    expect(outputs, 2, x, tables, k=count, factor=2, noise_key=-5)


@pytest.mark.parametrize("kernels", KERNELS)
def test_threads_and_rows_beside_a_row_change_no_bit(kernels: str, run_operator: Run) -> None:
    tables, x = make_tables(20_000, 96, 36), random_floats(3, 5, 96)
    together = run_head(run_operator, kernels, x, tables, num_candidates=500, keys=[1, 2, 3, 4, 5])

    for threads in (1, 2):
        for row in range(5):
            alone = run_head(
                run_operator, kernels, x[row : row + 1], tables, num_candidates=500, keys=[row + 1], threads=threads
            )
            for mine, theirs in zip(alone, together, strict=True):
                np.testing.assert_array_equal(mine[0], theirs[row])


@pytest.mark.parametrize("kernels", KERNELS)
def test_every_row_has_its_own_number_of_candidates(kernels: str, run_operator: Run) -> None:
    tables, x = make_tables(9_000, 64, 8), random_floats(4, 4, 64)

    outputs = run_head(run_operator, kernels, x, tables, num_candidates=40, counts=[0, 1, 17, 100_000], num_outputs=20)

    for row, k in enumerate([40, 1, 17, 9_000]):
        expect(outputs, row, x, tables, k=k)
    np.testing.assert_array_equal(outputs[0][1, 1:], -1)
    np.testing.assert_array_equal(outputs[1][2, 17:], -np.inf)


@pytest.mark.parametrize("kernels", KERNELS)
def test_ties_go_to_the_lowest_tokens(kernels: str, run_operator: Run) -> None:
    tables = make_tables(20_000, 64, 4)
    equal = replace(tables, ranking=pack_ranking(np.ones((20_000, 4), np.float32)))
    x = np.abs(random_floats(5, 2, 64))
    x[1] = 0

    outputs = run_head(run_operator, kernels, x, equal, num_candidates=37, num_outputs=37)

    for row in range(2):
        assert sorted(outputs[0][row]) == list(range(37))
        expect(outputs, row, x, equal, k=37)
    np.testing.assert_array_equal(outputs[0][1], range(37))


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_sample_of_the_best_scores_alone_does_not_lose_candidates(kernels: str, run_operator: Run) -> None:
    """Every panel that the floor is estimated from scores high, all others low: the floor is far too high."""
    vocab, panels, samples = 32_000, 2_000, 128
    left = random_floats(6, vocab, 4) * np.float32(0.01)
    for index in range(samples):
        first = panels * index // samples * 16
        left[first : first + 16] += 1
    tables = replace(make_tables(vocab, 64, 4), ranking=pack_ranking(left), down=np.ones((4, 64), np.float32))
    x = np.abs(random_floats(7, 1, 64))

    outputs = run_head(run_operator, kernels, x, tables, num_candidates=4_000, num_outputs=64)

    expect(outputs, 0, x, tables, k=4_000)
    scores = ranking_scores(project(tables.down, x[0]), tables)
    assert set(outputs[0][0]) <= set(select_best(scores, 4_000).tolist())


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf, 3e38])
def test_a_broken_row_breaks_no_other(kernels: str, broken: float, run_operator: Run) -> None:
    tables, x = make_tables(9_000, 64, 8), random_floats(8, 3, 64)
    x[1] = np.where(np.arange(64) % 2, x[1], broken)
    tables.down[:] = np.abs(tables.down) * 8

    ids, logits, sums = outputs = run_head(run_operator, kernels, x, tables)

    assert (ids[1] == -1).all()
    assert np.isnan(logits[1]).all()
    assert np.isnan(sums[1])
    expect(outputs, 0, x, tables, k=64)
    expect(outputs, 2, x, tables, k=64)


@pytest.mark.parametrize("kernels", KERNELS)
def test_groups_bring_all_their_tokens(kernels: str, run_operator: Run) -> None:
    tables = make_tables(9_000, 64, 8)
    order = np.random.default_rng(1).permutation(9_000).astype(np.int32)
    groups = np.concatenate([order, np.full(16 * 570 - 9_000, -1, np.int32)]).reshape(570, 16)
    grouped = replace(tables, groups=groups, ranking=pack_ranking(random_floats(2, 570, 8)))
    x = random_floats(3, 3, 64)

    outputs = run_head(run_operator, kernels, x, grouped, num_candidates=330, keys=[0, 0, 9], counts=[0, 5, 20_000])

    expect(outputs, 0, x, grouped, k=330)
    expect(outputs, 1, x, grouped, k=5)
    expect(outputs, 2, x, grouped, k=20_000, noise_key=9)


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_prior_is_added_and_may_forbid_tokens(kernels: str, run_operator: Run) -> None:
    prior = random_floats(4, 9_000)
    prior[::2] = -np.inf
    tables, x = replace(make_tables(9_000, 64, 8), prior=prior), random_floats(5, 1, 64)

    outputs = run_head(run_operator, kernels, x, tables)

    assert (outputs[0][0] % 2 == 1).all()
    expect(outputs, 0, x, tables, k=64)


@pytest.mark.parametrize("kernels", KERNELS)
def test_scores_may_stand_for_logits(kernels: str, run_operator: Run) -> None:
    tables, x = replace(make_tables(9_000, 64, 8), head=None), random_floats(5, 2, 64)

    outputs = run_head(run_operator, kernels, x, tables, keys=[0, 3], factors=[1, 0.5])

    expect(outputs, 0, x, tables, k=64)
    expect(outputs, 1, x, tables, k=64, factor=0.5, noise_key=3)


def test_a_ranking_with_another_rank_is_refused(run_operator: Run) -> None:
    tables = make_tables(100, 64, 8)
    wrong: PackedRanking = pack_ranking(random_floats(1, 100, 16))

    with pytest.raises(Exception, match="ranking codes: expected as many inputs as down has rows"):
        run_head(run_operator, "generic", random_floats(2, 1, 64), replace(tables, ranking=wrong))


def test_groups_without_exact_logits_are_refused(run_operator: Run) -> None:
    tables = replace(make_tables(100, 64, 8), head=None, groups=np.arange(100, dtype=np.int32).reshape(50, 2))

    with pytest.raises(Exception, match="is_exact: expected 1 with groups"):
        run_head(run_operator, "generic", random_floats(2, 1, 64), tables)
