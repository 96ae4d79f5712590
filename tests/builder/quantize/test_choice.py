"""The choice of planes and factors: estimates against measured errors, outlier channels, budgets."""

import numpy as np
import pytest
from draftsmith.builder.quantize.choice import Observed, channel_factors, choose, relative_cost


def _observed(x: np.ndarray, grad_x: np.ndarray, num_outputs: int = 4, other_max: np.ndarray | None = None) -> Observed:
    largest = np.abs(x).max(axis=0)
    return Observed(
        x=x,
        grad_x=grad_x,
        grad_y=np.full((len(x), num_outputs), 0.01, np.float32),
        channel_max=largest,
        other_max=largest if other_max is None else other_max,
    )


def _normal(num: int, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((num, size)).astype(np.float32)


def _rounded(x: np.ndarray, choice) -> np.ndarray:
    """What the planes leave of ``x``."""
    rest, total = (x / choice.factors).astype(np.float64), 0.0
    for index in range(choice.planes):
        step = choice.step * 256.0 ** (choice.planes - 1 - index)
        plane = np.clip(np.rint(rest / step), -128, 127) * step
        rest, total = rest - plane, total + plane
    return total * choice.factors


@pytest.mark.parametrize("allowance", [1.0, 1e-7, 1e-11])
def test_the_estimate_is_the_measured_second_order_cost(allowance: float) -> None:
    x, grad = _normal(4000, 24), 0.1 * _normal(4000, 24, 1)
    choice = choose(_normal(24, 4, 2), _observed(x, grad), allowance)
    assert choice.planes == {1.0: 1, 1e-7: 2, 1e-11: 3}[allowance]
    cost = 0.5 * np.mean(np.sum((grad * (_rounded(x, choice) - x)) ** 2, axis=1))
    assert choice.activation_kl == pytest.approx(cost, rel=0.1, abs=1e-10)


def test_a_channel_100_times_larger_gets_a_factor_and_the_others_keep_their_bits() -> None:
    """Case B7: one scale for the whole tensor rounds the other channels to nothing."""
    x, grad = _normal(2000, 32), _normal(2000, 32, 1)
    x[:, 5] *= 100
    grad[:, 5] /= 100
    choice = choose(_normal(32, 4, 2), _observed(x, grad), allowance=10.0)
    assert (choice.planes, choice.exponent) == (1, 1.0)
    per_tensor = np.abs(x).max() / 127
    others = np.delete(np.arange(32), 5)
    error = np.square(_rounded(x, choice) - x)[:, others].mean()
    tensor_error = np.square(np.rint(x / per_tensor) * per_tensor - x)[:, others].mean()
    assert error < 1e-3
    assert tensor_error > 100 * error


def test_a_range_is_judged_on_text_that_it_was_not_taken_from() -> None:
    """Values four times beyond the known range make one plane too dear, and two reach that far."""
    x, grad = _normal(500, 16), _normal(500, 16, 1)
    surprising = choose(_normal(16, 4, 2), _observed(x, grad, other_max=np.abs(x).max(axis=0) / 4), 0.02)
    expected = choose(_normal(16, 4, 2), _observed(x, grad), 0.02)
    assert (expected.planes, surprising.planes) == (1, 2)


def test_an_input_that_is_always_zero_costs_nothing() -> None:
    zeros = np.zeros((10, 6), np.float32)
    choice = choose(_normal(6, 4), _observed(zeros, _normal(10, 6)), 0.0)
    assert choice.planes == 1
    assert choice.activation_kl == 0
    assert choice.step > 0


def test_factors_have_mean_one_and_no_zero() -> None:
    factors = channel_factors(np.array([0.0, 1.0, 100.0], np.float32), 1.0)
    assert factors.min() > 0
    assert np.exp(np.log(factors).mean()) == pytest.approx(1, rel=1e-5)
    np.testing.assert_array_equal(channel_factors(np.array([3.0, 5.0], np.float32), 0.0), [1, 1])


def test_planes_cost_more_and_more() -> None:
    costs = [relative_cost(planes, 576, 3072) for planes in (1, 2, 3)]
    assert costs[0] == 0 < costs[1] < costs[2]
