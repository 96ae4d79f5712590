"""Llama 3's rope settings from the factors that GGUF stores in ``rope_freqs.weight``.

The converter writes, for each frequency, the number it is divided by: 1 where the wavelength is short, ``factor`` where
it is long, and 1 / ((1 - s) / factor + s) between, s = (original / wavelength - low) / (high - low). Only the ratios of
original, low and high follow from that; low is 1 in every published model.
"""

from typing import Any

import numpy as np
from draftsmith.builder.errors import CheckpointError
from draftsmith.builder.spec.target import RopeSpec

from .values import Weights

KNOWN = [{"low": 1.0, "high": 4.0, "original": 8192}]
TOLERANCE = 1e-4


def llama3_scaling(factors: Weights, rope: RopeSpec, head_dim: int, where: str) -> dict[str, Any] | None:
    """``rope_scaling`` of kind llama3 that gives ``factors`` (float32 [Dh/2]); None when all are 1.

    ``rope`` is what the metadata says without them. Raises ``CheckpointError`` when no setting gives the factors.
    """
    half = head_dim // 2
    if factors.shape != (half,) or not np.isfinite(factors).all() or (factors <= 0).any():
        raise _error(f"{half} positive numbers", f"{factors.shape} values", where)
    if (factors == 1).all():
        return None
    if rope.kind != "default":
        raise _error("no other rope scaling beside it", rope.kind, where)
    wavelengths = 2 * np.pi * rope.theta ** (np.arange(half, dtype=np.float64) / half)
    factor = float(factors.max())
    for setting in [*KNOWN, *_fit(factors.astype(np.float64), factor, wavelengths)]:
        made = llama3_factors(wavelengths, factor, **setting)
        if np.allclose(made, factors, rtol=TOLERANCE, atol=0):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": setting["low"],
                "high_freq_factor": setting["high"],
                "original_max_position_embeddings": int(setting["original"]),
            }
    raise _error("factors of a llama3 scaling", f"{factors.min():.4g} to {factor:.4g}", where)


def llama3_factors(wavelengths: Any, factor: float, *, low: float, high: float, original: float) -> Any:
    """What each frequency is divided by; float64 [Dh/2]."""
    smooth = np.clip((original / wavelengths - low) / (high - low), 0.0, 1.0)
    return 1.0 / ((1.0 - smooth) / factor + smooth)


def _fit(factors: Any, factor: float, wavelengths: Any) -> list[dict[str, float]]:
    """Settings with low = 1 from the frequencies between: s is a line in 1 / wavelength."""
    between = (factors > 1 + 1e-3) & (factors < factor * (1 - 1e-3))
    if np.count_nonzero(between) < 2:
        return []
    smooth = (1 / factors[between] - 1 / factor) / (1 - 1 / factor)
    slope, offset = np.polyfit(1 / wavelengths[between], smooth, 1)
    if slope <= 0 or offset >= 0:
        return []
    high = 1.0 - 1.0 / offset
    return [{"low": 1.0, "high": round(high, 4), "original": round(slope * (high - 1.0))}]


def _error(expected: str, found: str, where: str) -> CheckpointError:
    return CheckpointError(
        "tensor `rope_freqs.weight`", expected=expected, found=found, where=where, action="This rope is not supported."
    )
