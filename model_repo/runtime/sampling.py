"""From scores to a token: temperature, top-k, top-p, min-p, and the Gumbel-max draw with shared noise.

Truncation follows transformers' order: temperature, top-k, top-p, min-p, each on what the one before left over.
"""

import math

import numpy as np
import numpy.typing as npt
from draftsmith.model_repo.contract.params import SamplingParams

from .noise import GUMBEL_MAX, gumbel, token_bits
from .sessions.base import FloatArray

IdArray = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

_GAPS = (6.0, 12.0, 24.0, math.inf)
_SLACK = 1e-5


def choose_top(scores: FloatArray) -> int:
    """The most probable token of scores [V]; ties go to the lowest id."""
    return int(scores.argmax())


def find_top_k(scores: FloatArray, k: int) -> IdArray:
    """Ids of the k largest scores, ascending by id; ties go to the lowest ids; minus infinity never counts."""
    top = float(scores.max())
    candidates = np.empty(0, np.int64)
    for gap in _GAPS:
        candidates = np.flatnonzero(scores > (top - gap if gap < math.inf else -math.inf))
        if len(candidates) >= k:
            break
    if len(candidates) <= k:
        return candidates
    values = scores[candidates]
    limit = np.partition(values, len(values) - k)[len(values) - k]
    keep = values > limit
    ties = np.flatnonzero(values == limit)[: k - int(keep.sum())]
    keep[ties] = True
    kept: IdArray = candidates[keep]
    return kept


def find_top_p(weights: FloatArray, top_p: float) -> IdArray:
    """Indexes of the smallest set of the largest weights [n] that holds the share ``top_p``, ascending.

    An index is kept if the weights before it hold less than the share (transformers' rule); ties: the lowest first.
    """
    need = top_p * float(weights.sum(dtype=np.float64))
    candidates = np.empty(0, np.int64)
    for limit in (1e-2, 1e-4, 1e-6, 0.0):
        candidates = np.flatnonzero(weights > limit)
        if float(weights[candidates].sum(dtype=np.float64)) >= need:
            break
    order = np.argsort(-weights[candidates], kind="stable")
    mass = np.cumsum(weights[candidates[order]], dtype=np.float64)
    count = int(np.searchsorted(mass, need, side="left")) + 1
    return np.sort(candidates[order[:count]])


def truncate(scores: FloatArray, params: SamplingParams) -> tuple[IdArray | None, FloatArray]:
    """What temperature and truncation leave of scores [V]: (ids ascending or None for all, log-weights float32 [n]).

    Log-weights are scores / temperature, unnormalised. At least one token is left.
    """
    ids: IdArray | None = None
    if params.top_k and params.top_k < len(scores):
        ids = find_top_k(scores, params.top_k)
    logits = (scores if ids is None else scores[ids]) / np.float32(params.temperature)
    if params.top_p < 1.0 or params.min_p > 0.0:
        weights = np.exp(logits - logits.max())
        kept = find_top_p(weights, params.top_p) if params.top_p < 1.0 else np.arange(len(weights))
        if params.min_p > 0.0:
            kept = kept[weights[kept] >= params.min_p]
        ids = kept if ids is None else ids[kept]
        logits = logits[kept]
    return ids, logits


def find_probabilities(scores: FloatArray, params: SamplingParams) -> Float64Array:
    """The distribution that ``draw`` draws from, float64 [V] (one-hot where the request is greedy)."""
    result = np.zeros(len(scores))
    if params.is_greedy:
        result[choose_top(scores)] = 1.0
        return result
    ids, logits = truncate(scores, params)
    weights = np.exp(logits.astype(np.float64) - float(logits.max()))
    result[slice(None) if ids is None else ids] = weights / weights.sum()
    return result


def draw(scores: FloatArray, params: SamplingParams, key: int) -> int:
    """Sample a token of scores [V]: the largest log-weight + Gumbel noise of (key, token)."""
    ids, logits = truncate(scores, params)
    index = draw_gumbel(logits, ids, key)
    return index if ids is None else int(ids[index])


def draw_gumbel(logits: FloatArray, ids: IdArray | None, key: int) -> int:
    """Index of the largest ``logits + noise(key, ids)``; ties go to the first.

    Noise is bounded, so most tokens of a large vocabulary cannot win: the best of those near the top gives a score to
    beat, and a token reaches it only if its 32 bits are below 2^32 (1 - exp(-exp(gap))) < 2^32 exp(gap), gap = logit -
    score. The result is that of computing all noise.
    """
    below = logits - logits.max()  # float32, at most 0: small numbers, whatever the temperature is
    near = np.flatnonzero(below >= -4.0)
    best = float((below[near] + gumbel(token_bits(key, near if ids is None else ids[near]))).max())
    reach = np.flatnonzero(below >= best - GUMBEL_MAX - _SLACK)
    bits = token_bits(key, reach if ids is None else ids[reach])
    limits = np.exp(below[reach]) * np.float32(2.0**32 * math.exp(-best) * (1 + _SLACK)) + np.float32(1)
    alive = bits <= limits
    reach = reach[alive]
    return int(reach[(below[reach] + gumbel(bits[alive])).argmax()])
