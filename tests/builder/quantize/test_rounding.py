"""Compensated rounding: nearer on the inputs it was made for, and plain where nothing can be compensated."""

import numpy as np
import pytest
from draftsmith.builder.quantize.codes import column_scales, restore, round_columns
from draftsmith.builder.quantize.rounding import compensate_rounding


def _inputs(num: int, size: int, seed: int) -> np.ndarray:
    """Correlated, of very different sizes."""
    rng = np.random.default_rng(seed)
    mixed = rng.standard_normal((num, size)) @ rng.standard_normal((size, size))
    return (mixed * rng.uniform(0.01, 3, size)).astype(np.float32)


@pytest.mark.parametrize(("size", "num_outputs"), [(1, 1), (7, 3), (64, 5), (65, 130), (150, 33)])
def test_outputs_are_nearer_than_with_plain_rounding(size: int, num_outputs: int) -> None:
    x = _inputs(4 * size + 10, size, size)
    weight = np.random.default_rng(1).standard_normal((size, num_outputs)).astype(np.float32)
    codes, scales = compensate_rounding(weight, x.T.astype(np.float64) @ x / len(x))
    plain = restore(round_columns(weight, column_scales(weight)), column_scales(weight))
    error = np.square(x @ (restore(codes, scales) - weight)).sum()
    plain_error = np.square(x @ (plain - weight)).sum()
    assert codes.dtype == np.int8
    assert np.abs(codes.astype(int)).max() <= 127
    assert error <= plain_error * (1.0001 if size == 1 else 0.8)


def test_independent_inputs_leave_plain_rounding() -> None:
    weight = np.random.default_rng(2).standard_normal((30, 8)).astype(np.float32)
    codes, scales = compensate_rounding(weight, np.diag(np.linspace(1, 2, 30)))
    np.testing.assert_array_equal(codes, round_columns(weight, scales))


def test_channels_that_are_always_zero_and_empty_columns_do_no_harm() -> None:
    x = _inputs(50, 10, 3)
    x[:, 4] = 0
    weight = np.ones((10, 3), np.float32)
    weight[:, 1] = 0
    codes, scales = compensate_rounding(weight, x.T.astype(np.float64) @ x / 50)
    assert np.isfinite(scales).all()
    assert not codes[:, 1].any()
    np.testing.assert_allclose(restore(codes, scales)[:, 0], 1, atol=0.02)


def test_an_input_that_is_never_there_is_rounded_plainly() -> None:
    weight = np.array([[0.3], [-1.0]], np.float32)
    codes, _ = compensate_rounding(weight, np.zeros((2, 2)))
    np.testing.assert_array_equal(codes, [[38], [-127]])
