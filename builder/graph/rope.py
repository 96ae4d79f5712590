"""Cosine and sine tables of rotary position embeddings, in float64 from a ``RopeSpec``.

Formulas: transformers ``modeling_rope_utils`` (default, linear, dynamic NTK, llama3) and the YaRN paper
(arXiv 2309.00071, sections 3.2 to 3.4).
"""

import math

import numpy as np
import numpy.typing as npt

from ..spec.target import RopeSpec

Array = npt.NDArray[np.float64]


def rope_tables(rope: RopeSpec, head_dim: int, num_positions: int) -> tuple[Array, Array]:
    """Cosines and sines [num_positions, head_dim / 2] (float64), YaRN's attention factor multiplied in."""
    positions = np.arange(num_positions, dtype=np.float64)[:, None]
    frequencies, factor = _frequencies(rope, head_dim, num_positions)
    angles = positions * frequencies
    return np.cos(angles) * factor, np.sin(angles) * factor


def _frequencies(rope: RopeSpec, dim: int, num_positions: int) -> tuple[Array, float]:
    """Inverse frequencies ([dim / 2], or [num_positions, dim / 2] where they depend on the position) and the factor."""
    plain = _inverse(rope.theta, dim)
    match rope.kind:
        case "default":
            return plain, 1.0
        case "linear":
            return plain / _given(rope, "factor"), 1.0
        case "dynamic":
            return _dynamic(rope, dim, num_positions), 1.0
        case "llama3":
            return _llama3(rope, plain), 1.0
        case "yarn":
            return _yarn(rope, plain, dim), _yarn_factor(rope)


def _inverse(theta: float | Array, dim: int) -> Array:
    exponents: Array = np.arange(0, dim, 2, dtype=np.float64) / dim
    return np.asarray(1.0 / np.power(theta, exponents), dtype=np.float64)


def _given(rope: RopeSpec, name: str) -> float:
    value = getattr(rope, name)
    if value is None:
        raise ValueError(f"rope kind {rope.kind} needs {name}")
    return float(value)


def _dynamic(rope: RopeSpec, dim: int, num_positions: int) -> Array:
    """Row p is that of a sequence of p + 1 tokens: the base grows once the original length is passed."""
    original, factor = _given(rope, "original_max_positions"), _given(rope, "factor")
    lengths = np.maximum(np.arange(1, num_positions + 1, dtype=np.float64), original)[:, None]
    base = rope.theta * (factor * lengths / original - (factor - 1)) ** (dim / (dim - 2))
    return _inverse(base, dim)


def _llama3(rope: RopeSpec, plain: Array) -> Array:
    """Long wavelengths are divided by the factor, short ones kept, those between blended."""
    factor, original = _given(rope, "factor"), _given(rope, "original_max_positions")
    low, high = _given(rope, "low_freq_factor"), _given(rope, "high_freq_factor")
    turns = original * plain / (2 * math.pi)
    blend: Array = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1 - blend) * plain / factor + blend * plain


def _yarn(rope: RopeSpec, plain: Array, dim: int) -> Array:
    """Dimensions that turn often are kept, those that turn seldom divided by the factor, a ramp between."""
    factor, original = _given(rope, "factor"), _given(rope, "original_max_positions")
    fast = 32.0 if rope.beta_fast is None else rope.beta_fast
    slow = 1.0 if rope.beta_slow is None else rope.beta_slow
    low, high = (
        dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(rope.theta)) for turns in (fast, slow)
    )
    if rope.truncate is not False:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    ramp: Array = (np.arange(dim // 2, dtype=np.float64) - low) / (high - low)
    kept: Array = 1.0 - np.clip(ramp, 0.0, 1.0)
    blended: Array = plain / factor * (1 - kept) + plain * kept
    return blended


def _yarn_factor(rope: RopeSpec) -> float:
    """What cosines and sines are multiplied with: given, or from ``mscale``, or 0.1 ln(factor) + 1."""
    if rope.attention_factor is not None:
        return rope.attention_factor

    def scale(mscale: float) -> float:
        factor = _given(rope, "factor")
        return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0

    if rope.mscale and rope.mscale_all_dim:
        return scale(rope.mscale) / scale(rope.mscale_all_dim)
    return scale(1.0)
