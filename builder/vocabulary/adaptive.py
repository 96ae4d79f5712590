"""How many candidates a context needs: a table from the entropy of the distribution that its last token came from.

Entropies are those of the 16 best logits, renormalised, which the target's and every draft's step give anyway.
On SmolLM2's own states they say next to nothing about the candidates needed: the fit then gives one k for all.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..spec.ranking import Ranking
from .candidates import best_first, score
from .hidden_states import HeadStates
from .recall import BLOCK_BYTES

FloatArray = npt.NDArray[np.float32]
NUM_BEST = 16
NUM_BINS = 6
CHOICES = (256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveCandidates:
    """``num_candidates[i]`` serve entropies (nats) below ``limits[i]``, the last one those above all limits."""

    limits: tuple[float, ...]
    num_candidates: tuple[int, ...]

    def choose(self, entropy: float) -> int:
        """k for one context; NaN (unknown) takes the most."""
        if np.isnan(entropy):
            return max(self.num_candidates)
        return self.num_candidates[int(np.searchsorted(self.limits, entropy, side="right"))]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"limits": list(self.limits), "num_candidates": list(self.num_candidates)}


def entropy_of_best(logits: FloatArray) -> npt.NDArray[np.float64]:
    """Entropy (nats) of the renormalised ``NUM_BEST`` best of ``logits`` [..., c], -inf where there is none."""
    values = np.sort(np.asarray(logits, np.float64), axis=-1)[..., -NUM_BEST:]
    values = np.exp(values - values[..., -1:])
    shares = values / values.sum(axis=-1, keepdims=True)
    return np.asarray(-np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=-1))


def fit_adaptive(states: HeadStates, head: FloatArray, ranking: Ranking) -> tuple[AdaptiveCandidates, float]:
    """The table with the least mean k that keeps the recall which ``ranking.num_candidates`` have on ``states``.

    Returns it with that mean k. Positions are binned by their parents' entropy in equal numbers; within a bin all have
    one k, chosen by what a further candidate gains (one price for all bins).
    """
    entropies, needed = _entropies_and_needs(states, head, ranking)
    known = states.parent_index >= 0
    parents, needs = entropies[states.parent_index[known]], needed[known]
    cuts = np.arange(1, NUM_BINS) / NUM_BINS
    limits = np.unique(np.quantile(parents, cuts, method="higher")) if len(parents) else np.zeros(0)
    limits = limits[limits > parents.min(initial=np.inf)]  # values that occur: no bin is empty
    bins = np.searchsorted(limits, parents, side="right")
    choices = np.asarray([k for k in CHOICES if k <= len(head)] or [len(head)])
    hits = np.stack([[np.sum(needs[bins == b] <= k) for k in choices] for b in range(len(limits) + 1)])  # [bins, k]
    sizes = np.bincount(bins, minlength=len(limits) + 1)
    wanted = np.sum(needs <= ranking.num_candidates)
    best = np.full(len(sizes), min(ranking.num_candidates, len(head)))
    for price in np.geomspace(1e-7, 1e-2, 200):
        picked = np.argmax(hits - price * sizes[:, None] * choices, axis=1)
        chosen = np.maximum.accumulate(choices[picked])  # a flatter context never gets fewer
        reached = sum(np.sum(needs[bins == b] <= chosen[b]) for b in range(len(sizes)))
        if reached >= wanted and sizes @ chosen < sizes @ best:
            best = chosen
    table = AdaptiveCandidates(limits=tuple(map(float, limits)), num_candidates=tuple(map(int, best)))
    return table, float(sizes @ best / max(1, sizes.sum()))


def _entropies_and_needs(
    states: HeadStates, head: FloatArray, ranking: Ranking
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Each position's entropy, and the least number of candidates that holds its top-1 token."""
    size = 1 if ranking.groups is None else ranking.groups.shape[1]
    owner = np.arange(len(head))
    if ranking.groups is not None:
        filled = ranking.groups >= 0
        owner[ranking.groups[filled]] = np.nonzero(filled)[0]
    entropies, needs = np.empty(len(states)), np.empty(len(states), np.int64)
    rows = max(1, BLOCK_BYTES // (4 * len(head)))
    for start in range(0, len(states), rows):
        hidden = states.hidden[start : start + rows]
        logits, scores = hidden @ head.T, score(ranking, hidden)
        best = best_first(logits, min(NUM_BEST, len(head)))
        entropies[start : start + rows] = entropy_of_best(np.take_along_axis(logits, best, axis=1))
        own = np.take_along_axis(scores, owner[best[:, :1]], axis=1)
        needs[start : start + rows] = (np.sum(scores > own, axis=1) + 1) * size
    return entropies, needs
