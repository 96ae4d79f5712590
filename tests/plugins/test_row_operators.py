"""RmsNorm, AddRmsNorm and GatedActivation: near the float64 reference, the same bits in every instruction set."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from draftsmith.plugins.cpu_reference import gated_activation, rms_norm

from tests.plugins.conftest import KERNELS, Run, random_floats

ACTIVATIONS = {"silu": 0, "gelu_tanh": 1}


def same_everywhere(run: Run, operator: str, inputs: list[Any], **attributes: Any) -> list[npt.NDArray[np.float32]]:
    """The outputs of the plainest kernels, after a look at all others."""
    plain = run("generic", operator, inputs, **attributes)
    for kernels in KERNELS[1:]:
        try:
            other = run(kernels, operator, inputs, **attributes)
        except pytest.skip.Exception:
            continue
        for mine, theirs in zip(plain, other, strict=True):
            np.testing.assert_array_equal(mine, theirs, err_msg=kernels)
    return plain


@pytest.mark.parametrize("shape", [(1, 1), (3, 16), (2, 5, 70), (40, 576)])
def test_norms_are_near_the_reference(shape: tuple[int, ...], run_operator: Run) -> None:
    x, delta, weight = random_floats(1, *shape), random_floats(2, *shape), random_floats(3, shape[-1])

    plain = same_everywhere(run_operator, "RmsNorm", [x, weight], epsilon=1e-5)
    normed, total = same_everywhere(run_operator, "AddRmsNorm", [x, delta, weight], num_returned=2, epsilon=1e-5)

    np.testing.assert_allclose(plain[0], rms_norm(x.astype(np.float64), weight, 1e-5), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(total, x + delta)
    np.testing.assert_allclose(normed, rms_norm(total.astype(np.float64), weight, 1e-5), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("width", [1, 16, 50, 1536])
def test_gated_activations_are_near_the_reference(activation: str, width: int, run_operator: Run) -> None:
    gate_up = random_floats(4, 3, 2 * width) * 6

    y = same_everywhere(run_operator, "GatedActivation", [gate_up], activation=ACTIVATIONS[activation])[0]

    np.testing.assert_allclose(y, gated_activation(gate_up.astype(np.float64), activation), rtol=3e-6, atol=2e-6)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_activations_keep_their_limits(activation: str, run_operator: Run) -> None:
    gate = np.array([[-1e4, -90, -0.0, 0.0, 90, 1e4, np.nan, 88.5]], np.float32)
    gate_up = np.concatenate([gate, np.ones_like(gate)], axis=1)

    y = same_everywhere(run_operator, "GatedActivation", [gate_up], activation=ACTIVATIONS[activation])[0][0]

    np.testing.assert_allclose(y[[0, 1]], 0, atol=1e-30)
    np.testing.assert_array_equal(y[[2, 3]], 0)
    np.testing.assert_array_equal(y[[4, 5, 7]], gate[0, [4, 5, 7]])
    assert np.isnan(y[6])
