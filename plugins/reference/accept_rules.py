"""What the acceptance rules turn p into: closed forms for chosen children, the clip solver for sampled drafts.

p is the target's distribution, q the draft's, pi the rule's; C are q's candidates, divergences are in nats.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]
_STEPS = 60


def binary_divergence(new: float, old: float) -> float:
    """KL of a coin of probability ``new`` against one of ``old``."""
    return _term(new, old) + _term(1 - new, 1 - old)


def raise_by_budget(mass: float, budget: float) -> float:
    """The largest P' >= P = ``mass`` with KL_binary(P' || P) <= budget; P itself where it is 0 or 1."""
    if not 0 < mass < 1 or budget <= 0:
        return mass
    if budget >= -math.log(mass):
        return 1.0
    low, high = mass, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if binary_divergence(middle, mass) <= budget else (low, middle)
    return low


def raise_by_price(mass: float, price: float) -> float:
    """P' with logit P' = logit P + price."""
    if not 0 < mass < 1:
        return mass
    return mass / (mass + (1 - mass) * math.exp(-price))


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """pi = clip(q, low p, high p): low p outside the candidates. Low <= 1 <= high."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """q's support: q [C] > 0 and p [C] of its tokens; ``p_outside`` is p's mass on all others."""

    q: Float64Array
    p: Float64Array
    p_outside: float

    def clip(self, bounds: Clip) -> Float64Array:
        """pi [C] at the candidates."""
        return np.clip(self.q, bounds.low * self.p, np.where(self.p > 0, bounds.high, 0.0) * self.p)

    def mass(self, bounds: Clip) -> float:
        """Sum of pi over all tokens."""
        return float(self.clip(bounds).sum() + bounds.low * self.p_outside)

    def divergence(self, pi: Float64Array, outside: float) -> float:
        """KL(pi || p) of pi [C] at the candidates and outside * p elsewhere."""
        total = sum(_term(a, b) for a, b in zip(pi.tolist(), self.p.tolist(), strict=True))
        return total + (_term(outside, 1.0) * self.p_outside if self.p_outside > 0 else 0.0)


def clip_by_budget(candidates: Candidates, budget: float) -> Clip:
    """The pi closest to q (most sum min(q, pi)) with KL(pi || p) <= budget."""
    if candidates.divergence(candidates.q, 0.0) <= budget:
        return Clip(low=0.0, high=math.inf)
    low, high = 0.0, 1.0
    best = Clip(low=1.0, high=1.0)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        bounds = _find_high(candidates, middle)
        if bounds is not None and candidates.divergence(candidates.clip(bounds), bounds.low) <= budget:
            best, high = bounds, middle
        else:
            low = middle
    return best


def clip_by_price(candidates: Candidates, price: float) -> Clip:
    """The pi with high / low = exp(price): most sum min(q, pi) - KL / price' at one multiplier for all positions."""
    low, high = math.exp(-price), 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if candidates.mass(Clip(low=middle, high=max(1.0, middle * math.exp(price)))) < 1:
            low = middle
        else:
            high = middle
    return Clip(low=low, high=max(1.0, low * math.exp(price)))


def _find_high(candidates: Candidates, low: float) -> Clip | None:
    """The upper bound at which pi's mass is 1, None where no bound reaches it."""
    positive = candidates.p > 0
    p, q = candidates.p[positive], candidates.q[positive]
    order = np.argsort(q / p)
    p, q = p[order], q[order]
    below = np.cumsum(np.maximum(q, low * p))  # up to each ratio; above it: the bound times p
    above = np.append(np.cumsum(p[::-1])[::-1][1:], 0.0)
    reached = np.flatnonzero(below + (q / p) * above + low * candidates.p_outside >= 1)
    if not len(reached):
        return None
    first = int(reached[0])
    base = (float(below[first - 1]) if first else 0.0) + low * candidates.p_outside
    return Clip(low=low, high=max(1.0, (1 - base) / float(above[first] + p[first])))


def _term(new: float, old: float) -> float:
    if new <= 0:
        return 0.0
    return new * math.log(new / old) if old > 0 else math.inf
