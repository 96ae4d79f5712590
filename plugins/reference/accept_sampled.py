"""One node of a sampled draft: its child x was drawn from q, which is positive on the node's candidates alone.

x is accepted where coin * q(x) < kept(x), the part of q that the rule keeps; else a token is drawn from what the rule
adds. pi, the distribution that results, is kept + added, the latter scaled to the mass that is rejected.
"""

import math
from dataclasses import dataclass

import numpy as np

from .accept_noise import COIN, RESIDUAL, position_uniform
from .accept_rules import Candidates, Clip, clip_by_budget, clip_by_price
from .accept_step import Rule, Step, Strength
from .accept_target import Float64Array, Int64Array, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """q's tokens [C] (distinct, all in the vocabulary) and q [C] of them."""

    ids: Int64Array
    q: Float64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a rule treats a draw from q: ``kept`` [C] of q is accepted; ``added`` [C] and ``outside`` * p follow else.

    The latter count in proportion; ``drops_child``: the rejected token's weight is 0. ``spent`` is KL(pi || p).
    """

    kept: Float64Array
    added: Float64Array
    outside: float
    spent: float = 0.0
    drops_child: bool = False


def step_sampled(target: Target, child: int, draft: Draft, strength: Strength, *, key: int) -> Step:
    """One position at a temperature above greedy, ``child`` the drawn token; one that q does not hold is rejected."""
    rest = target.p.copy()
    rest[draft.ids] = 0.0
    candidates = Candidates(q=draft.q, p=target.p[draft.ids], p_outside=float(rest.sum()))
    plan = _make_plan(target, candidates, strength)
    places = np.flatnonzero(draft.ids == child)
    added = plan.added
    if len(places):
        place = int(places[0])
        share = position_uniform(key, COIN) * float(draft.q[place])
        if target.comparisons.less(share, float(plan.kept[place]), scale=float(draft.q[place])):
            return Step(child=0, token=child, spent=plan.spent)
        if plan.drops_child:
            added = np.where(draft.ids == child, 0.0, added)
    token = target.draw_weighted(draft.ids, added, plan.outside, position_uniform(key, RESIDUAL))
    return Step(child=None, token=token, spent=plan.spent)


def _make_plan(target: Target, candidates: Candidates, strength: Strength) -> Plan:
    match strength.rule:
        case Rule.MENTORED_BUDGET:
            return _plan_clipped(candidates, clip_by_budget(candidates, min(strength.first, strength.left)))
        case Rule.MENTORED_PRICE:
            plan = _plan_clipped(candidates, clip_by_price(candidates, strength.first))
            if plan.spent <= strength.left:
                return plan
            return _plan_clipped(candidates, clip_by_budget(candidates, strength.left))
        case Rule.LENIENT:
            return _plan_lenient(candidates, max(strength.first, math.exp(-strength.left)))
        case Rule.TYPICAL:
            plan = _plan_typical(target, candidates, strength)
            if not target.comparisons.less(strength.left, plan.spent):
                return plan
    return _plan_lenient(candidates, 1.0)


def _plan_clipped(candidates: Candidates, bounds: Clip) -> Plan:
    pi = candidates.clip(bounds)
    return Plan(
        kept=np.minimum(pi, candidates.q),
        added=np.maximum(bounds.low * candidates.p - candidates.q, 0.0),
        outside=bounds.low,
        spent=max(candidates.divergence(pi, bounds.low), 0.0),
    )


def _plan_lenient(candidates: Candidates, alpha: float) -> Plan:
    """min(q, p / alpha) is kept, (p - q)+ added; alpha = 1 is the exact rule."""
    kept = np.minimum(candidates.q, candidates.p / alpha)
    added = np.maximum(candidates.p - candidates.q, 0.0)
    if alpha >= 1:
        return Plan(kept=kept, added=added, outside=1.0)
    total = float(added.sum()) + candidates.p_outside
    scale = max(1.0 - float(kept.sum()), 0.0) / total if total > 0 else 0.0
    return Plan(kept=kept, added=added, outside=1.0, spent=candidates.divergence(kept + scale * added, scale))


def _plan_typical(target: Target, candidates: Candidates, strength: Strength) -> Plan:
    """Tokens whose p is high enough are kept whole; after another, p without it."""
    limit = min(strength.first, strength.second * math.exp(-target.entropy))
    passes = (candidates.p > limit) | (candidates.p >= 1)
    for probability in candidates.p[candidates.p > 0].tolist():
        target.comparisons.note(abs(probability - limit), probability)
    kept = np.where(passes, candidates.q, 0.0)
    rejected = np.where(passes, 0.0, candidates.q) / np.where(passes, 1.0, 1 - candidates.p)
    total = float(rejected.sum())
    pi = kept + candidates.p * (total - rejected)
    return Plan(kept=kept, added=candidates.p, outside=1.0, spent=candidates.divergence(pi, total), drops_child=True)
