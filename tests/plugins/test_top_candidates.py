"""TopCandidates: exactly the reference's tokens; its noise is the runtime's."""

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from draftsmith.model_repo.runtime.noise import gumbel, token_bits
from draftsmith.plugins.candidate_reference import gumbel_noise, top_candidates

from tests.plugins.conftest import KERNELS, Arrays, Run, random_floats

TYPES = (onnx.TensorProto.INT32, onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT)


def run_top(  # ``rest``: noise keys and inverse temperatures [B, N]
    run: Run,
    kernels: str,
    logits: npt.NDArray[np.float32],
    ids: npt.NDArray[np.int32] | None,
    rest: tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]],
    *,
    num_outputs: int = 16,
    threads: int = 2,
) -> Arrays:
    inputs = [logits, ids, *rest]
    return run(kernels, "TopCandidates", inputs, returned_types=TYPES, threads=threads, num_outputs=num_outputs)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("width", [1, 7, 16, 4_096, 10_001])
@pytest.mark.parametrize("mapped", [False, True])
def test_tokens_are_those_of_the_reference(kernels: str, width: int, mapped: bool, run_operator: Run) -> None:
    logits = random_floats(1, 2, 2, width) * 3
    ids = np.random.default_rng(2).permutation(2 * width)[:width].astype(np.int32)
    keys, factors = np.array([[0, 5], [-9, 2**62]]), np.array([[1, 0.3], [2, 1]], np.float32)

    for threads in (1, 2):
        outputs = run_top(run_operator, kernels, logits, ids if mapped else None, (keys, factors), threads=threads)

        for row in np.ndindex(2, 2):
            expected = top_candidates(
                logits[row],
                ids if mapped else np.arange(width, dtype=np.int32),
                num_outputs=16,
                factor=float(factors[row]),
                noise_key=int(keys[row]),
            )
            np.testing.assert_array_equal(outputs[0][row], expected.ids)
            np.testing.assert_array_equal(outputs[1][row], expected.logits)
            np.testing.assert_allclose(outputs[2][row], expected.log_sum_exp, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kernels", KERNELS)
def test_ties_masks_and_broken_rows(kernels: str, run_operator: Run) -> None:
    logits = np.zeros((1, 4, 9_000), np.float32)
    logits[0, 1] = -np.inf
    logits[0, 1, [8_000, 30]] = 1, 2
    logits[0, 2, 8_999] = np.nan
    logits[0, 3] = np.nan

    ids, values, sums = run_top(
        run_operator, kernels, logits, None, (np.zeros((1, 4), np.int64), np.ones((1, 4), np.float32)), num_outputs=3
    )

    np.testing.assert_array_equal(ids[0], [[0, 1, 2], [30, 8_000, 0], [-1, -1, -1], [-1, -1, -1]])
    np.testing.assert_array_equal(values[0, 1], [2, 1, -np.inf])
    assert np.isnan(values[0, 2:]).all()
    np.testing.assert_allclose(sums[0], [np.log(9_000), np.log(np.exp(1) + np.exp(2)), np.nan, np.nan], rtol=1e-6)


def test_noise_is_the_runtimes() -> None:
    ids = np.array([0, 1, 17, 262_143], np.int32)

    for key in (1, 2**63 + 12_345, 2**64 - 1):
        np.testing.assert_allclose(gumbel_noise(key, ids), gumbel(token_bits(key, ids)), rtol=1e-13)


def test_too_many_outputs_are_refused(run_operator: Run) -> None:
    keys, factors = np.zeros((1, 1), np.int64), np.ones((1, 1), np.float32)

    with pytest.raises(Exception, match="num_outputs: expected 1 to 64"):
        run_top(run_operator, "generic", random_floats(1, 1, 1, 8), None, (keys, factors), num_outputs=65)
