"""What the CPU operators of domain ``draftsmith`` compute, in NumPy: the specification, and the oracle of their tests.

``quantized_linear`` and ``packed_rows`` are exact (the same bits as the kernels); the others are float64.
Dimensions: M rows, K inputs, N outputs, B sequences, T tokens, H heads, D head size, S cache capacity.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .packing import PackedLinear, PackedVocabulary, unpack_panels

Float32Array = npt.NDArray[np.float32]
Array = npt.NDArray[np.float64]
LARGEST_ACTIVATION = np.float32(32512)
"""256 * 127: activations are 16-bit numbers that split into two signed bytes."""
SMALLEST_ROW = np.float32(1e-30)
KEY_GROUP = 16


def quantized_linear(x: Float32Array, packed: PackedLinear, bias: Float32Array | None = None) -> Float32Array:
    """``x`` [M, K] -> [M, N]: rows rounded to 16 bits with a scale each, exact integer sums, three roundings.

    A row with NaN or infinity in it gives NaN; one below ``SMALLEST_ROW`` counts as zeros.
    """
    return multiply_rounded(x, unpack_panels(packed.weights), packed.scales, packed.num_outputs, bias)


def vocabulary_linear(x: Float32Array, packed: PackedVocabulary, bias: Float32Array | None = None) -> Float32Array:
    """The same product with row-major weights: ``x`` [M, K] -> [M, V], the same bits."""
    return multiply_rounded(x, packed.weights, packed.scales, packed.num_outputs, bias)


def multiply_rounded(
    x: Float32Array, rows: npt.NDArray[np.int8], row_scales: Float32Array, count: int, bias: Float32Array | None
) -> Float32Array:
    """``x`` [M, K] times the first ``count`` of ``rows`` [N, at least K]; see ``quantized_linear``."""
    weights = rows[:count, : x.shape[1]].astype(np.int64)
    finite = np.isfinite(x).all(axis=1)
    largest = np.abs(np.where(finite[:, None], x, 0)).max(axis=1, initial=0).astype(np.float32)
    used = largest >= SMALLEST_ROW
    inverse = np.where(used, LARGEST_ACTIVATION / np.where(used, largest, 1), 0).astype(np.float32)
    scales = np.where(used, largest / LARGEST_ACTIVATION, 0).astype(np.float32)
    scales[~finite] = np.nan
    integers = np.rint(np.where(finite[:, None], x, 0) * inverse[:, None])
    integers = np.clip(integers, -LARGEST_ACTIVATION, LARGEST_ACTIVATION).astype(np.int64)
    sums = (integers @ weights.T).astype(np.float32)
    y = sums * scales[:, None] * row_scales[:count]
    return np.asarray(y if bias is None else y + bias, dtype=np.float32)


def packed_rows(ids: npt.NDArray[np.int32], packed: PackedVocabulary, depth: int) -> Float32Array:
    """Rows ``ids`` [...] of the stored weights as floats [..., K]."""
    rows = packed.weights[ids, :depth].astype(np.float32)
    return np.asarray(rows * packed.scales[ids][..., None], dtype=np.float32)


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    """``x`` over its last axis."""
    return np.asarray(x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * weight)


def gated_activation(gate_up: Array, activation: str) -> Array:
    """[..., 2 I] -> [..., I]: silu(gate) up, or gelu_tanh(gate) up."""
    gate, up = np.split(gate_up, 2, axis=-1)
    if activation == "silu":
        return np.asarray(gate / (1 + np.exp(-gate)) * up)
    return np.asarray(0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionFacts:
    """Attributes of ``CachedAttention``; ``window`` 0 sees everything."""

    num_heads: int
    num_kv_heads: int
    scale: float
    epsilon: float = 1e-5
    window: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionInputs:
    """One sequence's block; the cache holds plain rows here (see ``transpose_keys`` for the operator's layout)."""

    qkv: Array  # [T, (H + 2 Hkv) D]
    keys: Array  # [Hkv, past, D], finished
    values: Array  # [Hkv, past, D]
    positions: npt.NDArray[np.int32]  # [T]
    tree_mask: npt.NDArray[np.bool_]  # [T, U], U >= T: of the last U columns, the block's included
    cos: Array  # [positions, D / 2]
    sin: Array
    q_norm: Array | None = None  # [D]
    k_norm: Array | None = None


def cached_attention(facts: AttentionFacts, given: AttentionInputs) -> tuple[Array, Array, Array]:
    """Output [T, H D], and the keys and values with the block's behind them.

    Distances, where there is a window, are those of plain decoding: columns that a token does not see do not count.
    """
    num_tokens, past = len(given.positions), given.keys.shape[1]
    width = facts.num_heads + 2 * facts.num_kv_heads
    heads = given.qkv.reshape(num_tokens, width, given.keys.shape[-1]).transpose(1, 0, 2)
    q, k, v = np.split(heads, [facts.num_heads, facts.num_heads + facts.num_kv_heads])
    if given.q_norm is not None and given.k_norm is not None:
        q, k = rms_norm(q, given.q_norm, facts.epsilon), rms_norm(k, given.k_norm, facts.epsilon)
    cos, sin = given.cos[given.positions], given.sin[given.positions]
    keys = np.concatenate([given.keys, rotate(k, cos, sin)], axis=1)
    values = np.concatenate([given.values, v], axis=1)
    seen = _seen_columns(given.tree_mask, past)
    if facts.window:
        seen &= given.positions[:, None] - (seen.cumsum(axis=1) - 1) < facts.window
    group = facts.num_heads // facts.num_kv_heads
    scores = np.einsum("htd,hsd->hts", rotate(q, cos, sin) * facts.scale, np.repeat(keys, group, axis=0))
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    y = np.einsum("hts,hsd->thd", weights, np.repeat(values, group, axis=0))
    return y.reshape(num_tokens, facts.num_heads * given.keys.shape[-1]), keys, values


def _seen_columns(tree_mask: npt.NDArray[np.bool_], past: int) -> npt.NDArray[np.bool_]:
    """[T, past + T]: columns before the mask's are seen, later tokens of the block are not; no window yet."""
    num_tokens, num_masked = tree_mask.shape
    earlier = num_masked - num_tokens
    kept = tree_mask & np.tri(num_tokens, num_masked, earlier, dtype=np.bool_)
    before = np.ones((num_tokens, max(past - earlier, 0)), np.bool_)
    return np.concatenate([before, kept[:, max(earlier - past, 0) :]], axis=1)


def rotate(heads: Array, cos: Array, sin: Array) -> Array:
    """Halves of [heads, T, D] rotated against each other by [T, D / 2]."""
    a, b = np.split(heads, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def transpose_keys(keys: Float32Array) -> Float32Array:
    """Plain rows [..., S, D] as the operator keeps them, [..., S / 16, D, 16], in the shape [..., S, D]."""
    *lead, capacity, dim = keys.shape
    groups = keys.reshape(*lead, capacity // KEY_GROUP, KEY_GROUP, dim)
    return np.ascontiguousarray(groups.swapaxes(-1, -2)).reshape(keys.shape)


def restore_keys(keys: Float32Array) -> Float32Array:
    """Inverse of ``transpose_keys``."""
    *lead, capacity, dim = keys.shape
    groups = keys.reshape(*lead, capacity // KEY_GROUP, dim, KEY_GROUP)
    return np.ascontiguousarray(groups.swapaxes(-1, -2)).reshape(keys.shape)
