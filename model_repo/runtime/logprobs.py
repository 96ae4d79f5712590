"""Log-probabilities of a row: log-softmax of the raw logits, of the chosen token and of the most probable ones."""

import math
from dataclasses import dataclass

import numpy as np

from .request import TokenLogprobs
from .sampling import find_top_k
from .sessions.base import FloatArray


@dataclass(frozen=True, slots=True)
class LogprobEntry:
    """One token's log-probability and the most probable tokens at its position."""

    chosen: float
    top_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


def measure_logprobs(logits: FloatArray, token: int, num_top: int) -> LogprobEntry:
    """Log-softmax of raw logits [V] at ``token`` and at the ``num_top`` largest (ties: the lowest id first)."""
    top = float(logits.max())
    normaliser = top + math.log(float(np.exp(logits - np.float32(top)).sum(dtype=np.float64)))
    chosen = float(logits[token]) - normaliser
    if not num_top:
        return LogprobEntry(chosen, (), ())
    ids = find_top_k(logits, num_top)
    ids = ids[np.argsort(-logits[ids], kind="stable")]
    values = logits[ids].astype(np.float64) - normaliser
    return LogprobEntry(chosen, tuple(ids.tolist()), tuple(values.tolist()))


def join_logprobs(entries: list[LogprobEntry]) -> TokenLogprobs:
    """The entries of an update's tokens as one value."""
    return TokenLogprobs(
        chosen=tuple(e.chosen for e in entries),
        top_ids=tuple(e.top_ids for e in entries),
        top_logprobs=tuple(e.top_logprobs for e in entries),
    )
