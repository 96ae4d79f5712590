"""What ``SpeculativeHead`` and ``TopCandidates`` compute, in NumPy: the specification, and the oracle of their tests.

Candidate sets, their logits and their order are exact (the same bits as the kernels); sums of exponentials are float64.
Dimensions: M rows, V tokens, G groups, S tokens a group, d hidden size, r rank, k candidates, c outputs.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .cpu_reference import multiply_rounded, vocabulary_linear
from .packing import PackedRanking, PackedVocabulary, unpack_panels

Float32Array = npt.NDArray[np.float32]
IdArray = npt.NDArray[np.int32]
_LANES = 16
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_U64 = np.uint64


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTables:
    """The constant inputs of ``SpeculativeHead``; ``head`` None: scores are logits (is_exact 0)."""

    down: Float32Array  # [r, d]
    ranking: PackedRanking  # V or G rows
    head: PackedVocabulary | None
    prior: Float32Array | None = None  # [V] or [G]
    groups: IdArray | None = None  # [G, S], -1: none


@dataclass(frozen=True, slots=True, kw_only=True)
class BestTokens:
    """What both operators give for a row: c tokens, best first (-1 and -infinity behind the last)."""

    ids: IdArray  # [c]
    logits: Float32Array  # [c]
    log_sum_exp: float


def speculative_head(
    hidden: Float32Array, tables: HeadTables, *, num_outputs: int, num_candidates: int, factor: float, noise_key: int
) -> BestTokens:
    """One row: ``hidden`` [d]; ``factor`` is the inverse temperature, ``noise_key`` 0 means none."""
    projected = project(tables.down, hidden)
    if not (np.isfinite(hidden).all() and np.isfinite(projected).all()):
        return _broken(num_outputs)
    scores = ranking_scores(projected, tables)
    if tables.groups is None:
        ids = select_best(scores, num_candidates)
    else:
        members = tables.groups[select_best(scores, num_candidates // tables.groups.shape[1])].reshape(-1)
        ids = members[members >= 0]
    logits = scores[ids] if tables.head is None else vocabulary_linear(hidden[None], tables.head)[0, ids]
    return top_candidates(logits, ids, num_outputs=num_outputs, factor=factor, noise_key=noise_key)


def project(down: Float32Array, hidden: Float32Array) -> Float32Array:
    """``down`` [r, d] times ``hidden`` [d]: 16 lanes of fused multiply-adds, then halves onto each other."""
    rows, depth = down.shape
    padded = np.zeros((2, max(rows, 1), -(-depth // _LANES) * _LANES))
    padded[0, :rows, :depth], padded[1, :rows, :depth] = down, hidden
    # The product of two float32 is exact in float64, and so is all but the last bit of its sum with a third.
    lanes = np.zeros((rows, _LANES), np.float32)
    for start in range(0, padded.shape[2], _LANES):
        products = padded[0, :rows, start : start + _LANES] * padded[1, :rows, start : start + _LANES]
        lanes = (products + lanes).astype(np.float32)
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return np.asarray(lanes[:, 0])


def ranking_scores(projected: Float32Array, tables: HeadTables) -> Float32Array:
    """Scores [V] or [G] of ``projected`` [r], rounded to 16 bits as a linear layer's input."""
    packed = tables.ranking
    rows = unpack_panels(packed.weights)
    return np.asarray(multiply_rounded(projected[None], rows, packed.scales, packed.num_outputs, tables.prior)[0])


def select_best(scores: Float32Array, count: int) -> IdArray:
    """Indices of the ``count`` (at least 1) best scores, ties to the lowest, in ascending order; NaN is -infinity."""
    ordered = np.argsort(-np.where(np.isnan(scores), -np.inf, scores), kind="stable")
    return np.sort(ordered[: max(count, 1)]).astype(np.int32)


def top_candidates(
    logits: Float32Array, ids: IdArray, *, num_outputs: int, factor: float, noise_key: int
) -> BestTokens:
    """The best of ``logits`` [k] of tokens ``ids`` [k] by factor * logit + noise; ties to the lowest id."""
    if np.isnan(logits).any():
        return _broken(num_outputs)
    scaled = (np.float32(factor) * logits).astype(np.float64)
    values = scaled + gumbel_noise(noise_key, ids) if noise_key else scaled
    order = np.lexsort((ids, -values))[:num_outputs]
    best = BestTokens(
        ids=np.full(num_outputs, -1, np.int32),
        logits=np.full(num_outputs, -np.inf, np.float32),
        log_sum_exp=float(np.logaddexp.reduce(scaled)),
    )
    best.ids[: len(order)], best.logits[: len(order)] = ids[order], logits[order]
    return best


def gumbel_noise(key: int, ids: IdArray) -> npt.NDArray[np.float64]:
    """Noise [n] of tokens: see ``model_repo/runtime/noise.py``, whose numbers these are."""
    word = ids.astype(_U64) * _U64(_GOLDEN) + _U64((key + 2 * _GOLDEN) % 2**64)
    word = (word ^ (word >> _U64(30))) * _U64(_FIRST)
    word = (word ^ (word >> _U64(27))) * _U64(_SECOND)
    word = (word ^ (word >> _U64(31))) >> _U64(32)
    return np.asarray(-np.log(-np.log1p(-(word + 0.5) * 2.0**-32)))


def _broken(num_outputs: int) -> BestTokens:
    return BestTokens(
        ids=np.full(num_outputs, -1, np.int32),
        logits=np.full(num_outputs, np.nan, np.float32),
        log_sum_exp=float("nan"),
    )
