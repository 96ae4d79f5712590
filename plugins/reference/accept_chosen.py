"""One node of a tree whose children were chosen, not drawn: the exact rule, the relaxed ones, and greedy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .accept_noise import COIN, RESIDUAL, position_uniform
from .accept_rules import binary_divergence, raise_by_budget, raise_by_price
from .accept_step import Rule, Step, Strength
from .accept_target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """A draw from p: ``child`` is its place among the children or None; ``shared`` the token where noise is shared.

    ``coin`` is uniform in (0, 1): below P where a child was drawn.
    """

    child: int | None
    coin: float
    shared: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Siblings:
    """A node's children: distinct ``tokens``, p of each and together (``mass``), and p on all others (``outside``)."""

    target: Target
    tokens: Sequence[int]
    probabilities: Sequence[float]
    mass: float
    outside: float
    key: int

    @property
    def has_choice(self) -> bool:
        """True where p allows both a child and another token."""
        return self.mass > 0 and self.outside > 0


def step_greedy(target: Target, children: Sequence[int], strength: Strength) -> Step:
    """The argmax, or the most probable of the children that ``mentored`` (by budget) or ``top_delta`` lets pass."""
    logits = target.logits.astype(np.float64)
    best = float(logits.max())
    passing = [token for token in children if _passes_greedy(target, token, strength)]
    token = min(passing, key=lambda t: (-logits[t], t)) if passing else target.top
    child = children.index(token) if token in children else None
    return Step(child=child, token=token, regret=best - float(logits[token]))


def _passes_greedy(target: Target, token: int, strength: Strength) -> bool:
    if token == target.top:
        return True
    logits = target.logits
    if logits[token] == -np.inf:
        return False
    if strength.rule == Rule.MENTORED_BUDGET:
        return float(logits.max()) - float(logits[token]) <= strength.first
    if strength.rule == Rule.TOP_DELTA:
        rank = int((logits > logits[token]).sum()) + int((logits[:token] == logits[token]).sum())
        return rank < strength.second and not target.comparisons.less(
            float(target.p[token]), float(target.p[target.top]) - strength.first
        )
    return False


def step_chosen(target: Target, children: Sequence[int], strength: Strength, *, key: int, shared: bool) -> Step:
    """One position at a temperature above greedy; ``children`` are distinct tokens."""
    probabilities = [float(target.p[token]) for token in children]
    rest = target.p.copy()
    rest[list(children)] = 0.0
    siblings = Siblings(
        target=target,
        tokens=children,
        probabilities=probabilities,
        mass=min(sum(probabilities), 1.0),
        outside=float(rest.sum()),
        key=key,
    )
    draw = _draw(siblings, shared)
    match strength.rule:
        case Rule.MENTORED_BUDGET | Rule.MENTORED_PRICE | Rule.LENIENT:
            return _step_raised(siblings, strength, draw)
        case Rule.TYPICAL:
            return _step_typical(siblings, strength, draw)
        case Rule.THRESHOLD:
            return _step_threshold(siblings, strength, draw)
        case _:
            return _settle(siblings, draw, siblings.mass)


def _draw(siblings: Siblings, shared: bool) -> Draw:
    coin = position_uniform(siblings.key, COIN)
    if shared:
        token = siblings.target.draw_shared(siblings.key)
        if token not in siblings.tokens:
            return Draw(child=None, coin=siblings.mass + coin * (1 - siblings.mass), shared=token)
        child = siblings.tokens.index(token)
        before = sum(siblings.probabilities[:child])
        return Draw(child=child, coin=before + coin * siblings.probabilities[child], shared=token)
    if siblings.mass > 0 and (siblings.target.comparisons.less(coin, siblings.mass) or siblings.outside <= 0):
        return Draw(child=_pick(siblings, coin), coin=coin, shared=None)
    return Draw(child=None, coin=coin, shared=None)


def _pick(siblings: Siblings, goal: float) -> int:
    """The child at which the cumulative sum passes ``goal``; never one of probability 0."""
    total = 0.0
    last = 0
    for place, probability in enumerate(siblings.probabilities):
        if probability > 0:
            total, last = total + probability, place
            if siblings.target.comparisons.less(goal, total):
                break
    return last


def _settle(siblings: Siblings, draw: Draw, bound: float, *, spent: float = 0.0) -> Step:
    """The child that was drawn, else a token outside, which the coin's part above ``bound`` picks."""
    if draw.child is not None:
        return Step(child=draw.child, token=siblings.tokens[draw.child], spent=spent)
    if draw.shared is not None and draw.shared not in siblings.tokens:
        return Step(child=None, token=draw.shared, spent=spent)
    is_left_over = draw.shared is None and bound < 1
    uniform = (draw.coin - bound) / (1 - bound) if is_left_over else position_uniform(siblings.key, RESIDUAL)
    ids = np.array(siblings.tokens, np.int64)
    token = siblings.target.draw_weighted(ids, np.zeros(len(ids)), 1.0, uniform)
    return Step(child=None, token=token, spent=spent)


def _step_raised(siblings: Siblings, strength: Strength, draw: Draw) -> Step:
    """Children hold P' instead of P; inside and outside p keeps its proportions."""
    mass = siblings.mass
    if not siblings.has_choice:
        return _settle(siblings, draw, mass)
    raised = _raise(mass, strength)
    spent = binary_divergence(raised, mass)
    if draw.child is None and siblings.target.comparisons.less(draw.coin, raised):
        place = _pick(siblings, (draw.coin - mass) / (raised - mass) * mass)
        return Step(child=place, token=siblings.tokens[place], spent=spent)
    return _settle(siblings, draw, raised, spent=spent)


def _raise(mass: float, strength: Strength) -> float:
    if strength.rule == Rule.LENIENT:
        return min(1.0, mass / max(strength.first, math.exp(-strength.left)))
    if strength.rule == Rule.MENTORED_PRICE:
        raised = raise_by_price(mass, strength.first)
        if binary_divergence(raised, mass) <= strength.left:
            return raised
        return raise_by_budget(mass, strength.left)
    return raise_by_budget(mass, min(strength.first, strength.left))


def _step_typical(siblings: Siblings, strength: Strength, draw: Draw) -> Step:
    """The most probable child if its p is high enough; else a token outside."""
    if siblings.mass <= 0:
        return _settle(siblings, draw, siblings.mass)
    target, best = siblings.target, max(siblings.probabilities)
    limit = min(strength.first, strength.second * math.exp(-target.entropy))
    passes = target.comparisons.less(limit, best, scale=best) or siblings.outside <= 0
    spent = -math.log(best) if passes else -math.log(siblings.outside)
    if target.comparisons.less(strength.left, spent):
        return _settle(siblings, draw, siblings.mass)
    if passes:
        place = siblings.probabilities.index(best)
        for other in siblings.probabilities:
            target.comparisons.note(best - other if other < best else math.inf, best)
        return Step(child=place, token=siblings.tokens[place], spent=spent)
    if draw.shared is not None:
        return _settle(siblings, replace(draw, child=None), siblings.mass, spent=spent)
    anew = position_uniform(siblings.key, RESIDUAL)  # the coin may have fallen to a child
    return _settle(siblings, Draw(child=None, coin=anew, shared=None), 0.0, spent=spent)


def _step_threshold(siblings: Siblings, strength: Strength, draw: Draw) -> Step:
    """The first child with p >= single or coin * acc < the mass up to it (SGLang's rule: one coin for all siblings)."""
    comparisons = siblings.target.comparisons
    mass, covered, spent = 0.0, 0.0, 0.0
    accepted = draw.child
    is_open = True
    for place, probability in enumerate(siblings.probabilities):
        if probability > 0 and covered < 1:
            mass += probability
            passes = not comparisons.less(probability, strength.first, scale=probability)
            reach = 1.0 if passes else min(1.0, mass / strength.second)
            if reach > covered:
                spent += (reach - covered) * math.log((reach - covered) / probability)
            if is_open and (passes or comparisons.less(draw.coin * strength.second, mass)):
                accepted, is_open = place, False
            covered = max(covered, reach)
    if covered < 1:
        spent += (1 - covered) * math.log((1 - covered) / siblings.outside) if siblings.outside > 0 else math.inf
    if comparisons.less(strength.left, spent):
        return _settle(siblings, draw, siblings.mass)
    return _settle(siblings, replace(draw, child=accepted), covered, spent=spent)
