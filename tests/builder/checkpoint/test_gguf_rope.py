"""Llama 3's rope settings are found again from their factors, known or not."""

import numpy as np
import pytest
from draftsmith.builder.checkpoint.gguf_rope import llama3_factors, llama3_scaling
from draftsmith.builder.errors import CheckpointError
from draftsmith.builder.spec.target import RopeSpec

ROPE = RopeSpec(kind="default", theta=500_000.0)
WAVELENGTHS = 2 * np.pi * 500_000.0 ** (np.arange(64) / 64)


@pytest.mark.parametrize(("factor", "high", "original"), [(8.0, 4.0, 8192), (32.0, 4.0, 8192), (16.0, 8.0, 2048)])
def test_settings_are_found_again(factor: float, high: float, original: int) -> None:
    factors = llama3_factors(WAVELENGTHS, factor, low=1.0, high=high, original=original).astype(np.float32)
    found = llama3_scaling(factors, ROPE, 128, "x")
    assert found is not None
    again = llama3_factors(
        WAVELENGTHS,
        found["factor"],
        low=found["low_freq_factor"],
        high=found["high_freq_factor"],
        original=found["original_max_position_embeddings"],
    )
    np.testing.assert_allclose(again, factors, rtol=1e-4)
    assert found["original_max_position_embeddings"] == pytest.approx(original, rel=1e-3)


def test_factors_of_one_are_no_scaling() -> None:
    assert llama3_scaling(np.ones(64, np.float32), ROPE, 128, "x") is None


@pytest.mark.parametrize(
    "factors",
    [
        np.linspace(1, 8, 64, dtype=np.float32),
        np.ones(3, np.float32),
        np.zeros(64, np.float32),
        np.full(64, np.nan, np.float32),
    ],
)
def test_other_factors_are_refused(factors: np.ndarray) -> None:
    with pytest.raises(CheckpointError, match=r"tensor `rope_freqs.weight`"):
        llama3_scaling(factors, ROPE, 128, "x")


def test_factors_beside_another_scaling_are_refused() -> None:
    factors = llama3_factors(WAVELENGTHS, 8.0, low=1.0, high=4.0, original=8192).astype(np.float32)
    with pytest.raises(CheckpointError, match="expected no other rope scaling beside it, found linear"):
        llama3_scaling(factors, RopeSpec(kind="linear", theta=5e5, factor=2.0), 128, "x")
