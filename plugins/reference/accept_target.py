"""The target's distribution at a node, and draws from it.

Dimensions: V tokens, n some of them.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .accept_noise import gumbel_noise

Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


@dataclass(slots=True)
class Comparisons:
    """How near the closest comparison was: what rounding in float32 may turn, and what it cannot."""

    closest: float = math.inf

    def less(self, left: float, right: float, scale: float = 1.0) -> bool:
        """``left < right``, noting their distance as a share of ``scale``."""
        self.note(abs(left - right), scale)
        return left < right

    def note(self, distance: float, scale: float = 1.0) -> None:
        """A decision that a change of ``distance`` would turn."""
        if scale > 0 and not math.isnan(distance):
            self.closest = min(self.closest, distance / scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A node's logits float32 [V], and p float64 [V] after temperature and truncation (at temperature 1 where greedy).

    ``scores`` are log p up to a constant, float64 [V], -infinity where p is 0.
    """

    logits: Float32Array
    p: Float64Array
    scores: Float64Array
    comparisons: Comparisons = field(repr=False)

    @property
    def top(self) -> int:
        """The most probable token; ties go to the lowest id."""
        return int(self.logits.argmax())

    @property
    def entropy(self) -> float:
        """H(p) in nats."""
        kept = self.p[self.p > 0]
        return float(-(kept * np.log(kept)).sum())

    def draw_shared(self, key: int) -> int:
        """The token of the largest log p + noise of (key, token); ties go to the lowest id."""
        ids = np.flatnonzero(self.scores > -math.inf)
        values = self.scores[ids] + gumbel_noise(key, ids)
        best = int(values.argmax())
        if len(ids) > 1:
            self.comparisons.note(float(values[best] - np.partition(values, -2)[-2]))
        return int(ids[best])

    def draw_weighted(self, ids: Int64Array, weights: Float64Array, scale: float, uniform: float) -> int:
        """A token drawn from ``weights`` [n] at ``ids`` [n] and from scale * p elsewhere, by the cumulative sum over V.

        From p where no weight is left.
        """
        mass = self.p * scale
        mass[ids] = weights
        cumulative = np.cumsum(mass)
        if not cumulative[-1] > 0:
            mass = self.p
            cumulative = np.cumsum(mass)
        goal = uniform * float(cumulative[-1])
        index = min(int(np.searchsorted(cumulative, goal, side="right")), int(np.flatnonzero(mass)[-1]))
        self.comparisons.note(float(np.abs(cumulative[max(index - 1, 0) : index + 1] - goal).min()), cumulative[-1])
        return index


def is_broken(logits: Float32Array) -> bool:
    """NaN or +infinity among logits [V], or nothing above -infinity."""
    return bool(np.isnan(logits).any() or not math.isfinite(logits.max()))


def find_target(
    logits: Float32Array, *, temperature: float, top_k: int, top_p: float, min_p: float, comparisons: Comparisons
) -> Target:
    """p of a row of logits [V]; ``temperature`` at least 1e-4, ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 are off.

    What each truncation keeps is a beginning of the order (largest logit first, lowest id among equals): top-k its k
    first; top-p as many as it takes until those before hold the share; min-p those of at least min_p times the largest.
    """
    scaled = logits / np.float32(temperature)  # float32, as the decoding loop divides
    scores = (scaled - scaled.max()).astype(np.float64)
    weights = np.exp(scores)
    order = np.argsort(-logits, kind="stable")
    count = int((logits > -math.inf).sum())
    if 0 < top_k < len(logits):
        count = min(count, top_k)
    if top_p < 1:
        mass = np.cumsum(weights[order[:count]])
        need = top_p * float(mass[-1])
        before = np.concatenate([[0.0], mass[:-1]])
        comparisons.note(float(np.abs(before - need).min()), float(mass[-1]))
        count = max(1, int((before < need).sum()))
    if min_p > 0:
        kept = weights[order[:count]]
        comparisons.note(float(np.abs(kept - min_p).min()), min_p)
        count = max(1, int((kept >= min_p).sum()))
    cut = order[count:]
    scores[cut] = -math.inf
    weights[cut] = 0.0
    return Target(logits=logits, p=weights / weights.sum(), scores=scores, comparisons=comparisons)
