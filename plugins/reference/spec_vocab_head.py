"""What ``SpecVocabHead`` computes, in float64: which tokens of a large vocabulary are worth their exact logits.

Rounding is part of the definition in two places alone: h' (to hidden's type, or to 16-bit integers for an int8 ranking)
and the scores (to fp16, so that a key has 16 bits). Everything else is what fp32 arithmetic comes near to.
Dimensions: M rows, d hidden size, V tokens, r rank, k candidates, S tokens a group, R ranked rows (V, or ceil(V / S)).
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]
Float64Array = npt.NDArray[np.float64]
IdArray = npt.NDArray[np.int32]
HiddenType = Literal["float16", "bfloat16"]
RankingType = Literal["float16", "bfloat16", "int8", "float8_e4m3"]

MOST_QUANTUM = 32512
_NO_QUANTUM_BELOW = 1e-30


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadWeights:
    """The constant inputs, as numbers: what their stored elements stand for, without the scales."""

    w_down: FloatArray  # [r, d]
    w_vocab: FloatArray  # [R, r]
    w_head: FloatArray  # [V, d]
    w_vocab_scales: FloatArray | None = None  # [R], of 8-bit types


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadOptions:
    """What the operator's attributes and types say."""

    hidden_type: HiddenType
    ranking_type: RankingType
    num_candidates: int  # k, tokens
    num_outputs: int
    group_size: int = 1  # S


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadOutputs:
    """Outputs of M rows; ``chosen_ids``: a row's own candidates, ascending, before any union (none of a broken row)."""

    candidate_ids: IdArray  # [M, out], best first, ties to the lowest id; -1: missing
    candidate_logits: Float64Array  # [M, out]; -infinity: missing
    log_sum_exp: Float64Array  # [M]
    chosen_ids: tuple[IdArray, ...]


def spec_vocab_head(
    hidden: FloatArray, weights: HeadWeights, options: HeadOptions, request_of_row: IdArray | None = None
) -> HeadOutputs:
    """The best ``out`` of every row's candidates with exact logits, and the log-sum-exp over all its candidates.

    ``hidden`` [M, d]. Rows with equal ``request_of_row`` [M] share the union of their candidates; None: no row shares.
    A row whose hidden state or h' is not finite, or with a NaN logit, gets ids -1 and NaN; the first two kinds give a
    union nothing.
    """
    scores, is_broken = ranking_scores(hidden, weights, options)
    num_vocab = weights.w_head.shape[0]
    chosen = tuple(
        np.empty(0, np.int32) if broken else choose(row, options, num_vocab)
        for row, broken in zip(scores, is_broken, strict=True)
    )
    requests = np.arange(len(hidden)) if request_of_row is None else request_of_row
    rows = []
    for m, state in enumerate(hidden):
        if is_broken[m]:
            rows.append(_broken(options.num_outputs))
            continue
        ids = np.unique(np.concatenate([chosen[i] for i in range(len(hidden)) if requests[i] == requests[m]]))
        with np.errstate(all="ignore"):
            logits = weights.w_head[ids].astype(np.float64) @ state.astype(np.float64)
        rows.append(best_outputs(ids, logits, options.num_outputs))
    return HeadOutputs(
        candidate_ids=np.stack([row[0] for row in rows]),
        candidate_logits=np.stack([row[1] for row in rows]),
        log_sum_exp=np.array([row[2] for row in rows]),
        chosen_ids=chosen,
    )


def ranking_scores(
    hidden: FloatArray, weights: HeadWeights, options: HeadOptions
) -> tuple[npt.NDArray[np.float16], npt.NDArray[np.bool_]]:
    """Scores [M, R] as they are ranked, and whether a row [M] is broken."""
    with np.errstate(all="ignore"):
        projected = hidden.astype(np.float64) @ weights.w_down.astype(np.float64).T
        if options.ranking_type == "int8":
            rounded = quantize_projected(projected)
        else:
            rounded = round_to(projected, options.hidden_type)
        is_broken = ~(np.isfinite(hidden).all(axis=1) & np.isfinite(rounded).all(axis=1))
        scores = rounded @ weights.w_vocab.astype(np.float64).T
        if weights.w_vocab_scales is not None:
            scores = scores * weights.w_vocab_scales.astype(np.float64)
        return scores.astype(np.float32).astype(np.float16), is_broken


def quantize_projected(projected: Float64Array) -> Float64Array:
    """h' [M, r] as whole multiples of a row's scale, at most 32,512 of them; a row of (almost) zeros is zeros."""
    single = projected.astype(np.float32)
    most = np.abs(single).max(axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        quanta = np.rint(single * (np.float32(MOST_QUANTUM) / most)).astype(np.float64)
        scaled = quanta * (most / np.float32(MOST_QUANTUM)).astype(np.float64)
    # What is not finite stays so, for the caller to see.
    return np.where(np.isfinite(most), np.where(most < np.float32(_NO_QUANTUM_BELOW), 0.0, scaled), np.nan)


def round_to(values: FloatArray, hidden_type: HiddenType) -> Float64Array:
    """Values rounded to the nearest of a 16-bit type, ties to even; an overflow is infinity."""
    single = values.astype(np.float32)
    if hidden_type == "float16":
        return single.astype(np.float16).astype(np.float64)
    bits = single.view(np.uint32)
    kept = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(single), np.float32(np.nan), kept.view(np.float32)).astype(np.float64)


def choose(scores: npt.NDArray[np.float16], options: HeadOptions, num_vocab: int) -> IdArray:
    """Tokens of the best of ``scores`` [R]: NaN lowest, the lowest index first among equals. Ascending."""
    size = options.group_size
    num_kept = -(-options.num_candidates // size)
    # NaN ranks below -infinity; float32 has room for that.
    ranked = np.where(np.isnan(scores), np.float32(-1e38), np.maximum(scores.astype(np.float32), np.float32(-1e37)))
    kept = np.sort(np.argsort(-ranked, kind="stable")[:num_kept])
    tokens = (kept[:, None] * size + np.arange(size)).reshape(-1)
    return tokens[tokens < num_vocab].astype(np.int32)


def best_outputs(ids: IdArray, logits: Float64Array, num_outputs: int) -> tuple[IdArray, Float64Array, float]:
    """Of candidates ``ids`` [n] with ``logits`` [n]: the best ids and logits [out], and the log-sum-exp."""
    if np.isnan(logits).any():
        return _broken(num_outputs)
    order = np.lexsort((ids, -logits))[:num_outputs]
    best = np.full(num_outputs, -1, np.int32), np.full(num_outputs, -np.inf)
    best[0][: len(order)], best[1][: len(order)] = ids[order], logits[order]
    greatest = float(logits.max(initial=-np.inf))
    if not np.isfinite(greatest):
        return *best, greatest
    return *best, greatest + float(np.log(np.exp(logits - greatest).sum()))


def _broken(num_outputs: int) -> tuple[IdArray, Float64Array, float]:
    return np.full(num_outputs, -1, np.int32), np.full(num_outputs, np.nan), float("nan")
