"""A node of a sampled draft, as ``plugins/reference/accept_sampled.py`` and ``accept_rules.py``'s clip solver say it.

C candidates of q; those that are none have q = p = 0 and the id V.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from draftsmith.plugins.reference.accept_step import Rule

from .accept_step import STEPS, Node, Step, Strength, divergence_term, halve
from .accept_target import COIN, RESIDUAL, Target, position_uniform
from .function_values import LoopResult, Value, apply, choose_fields, constant, greatest, least, loop, where

_INFINITY = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """``ids`` int64 [C], ``q`` and ``p`` [C], and p of all other tokens (``outside``)."""

    ids: Value
    q: Value
    p: Value
    outside: Value

    def clip(self, low: Value, high: Value) -> Value:
        """pi [C]."""
        return least(greatest(self.q, low * self.p), where(self.p > 0, high * self.p, 0.0))

    def divergence(self, pi: Value, scale: Value) -> Value:
        """KL(pi || p) of pi [C] and scale * p elsewhere."""
        beyond = divergence_term(scale, constant(scale, 1.0, "float64")) * self.outside
        return divergence_term(pi, self.p).sum() + where(self.outside > 0, beyond, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``kept`` [C] of q is accepted; ``added`` [C] and ``scale`` * p elsewhere follow else, where ``drops_child``
    without the child; ``spent`` is the divergence."""

    kept: Value
    added: Value
    scale: Value
    spent: Value
    drops_child: Value


def step_sampled(node: Node, ids: Value, log_probs: Value) -> Step:
    """One position whose first child was drawn from q: ids int64 [C], log q float64 [C]."""
    target, children = node.target, node.children
    candidates = _find_candidates(target, ids, log_probs)
    plan = _make_plan(node, candidates)
    child = children.is_child.first_true()
    token = children.tokens.at(child)
    is_drawn = candidates.ids.equals(token)
    place = is_drawn.first_true()
    share = position_uniform(node.key, COIN) * candidates.q.at(place)
    is_accepted = is_drawn.any() & (share < plan.kept.at(place))
    added = where(is_drawn & plan.drops_child, 0.0, plan.added)
    weights = _replace(target.p * plan.scale, candidates.ids, added)
    drawn = target.draw_weighted(weights, position_uniform(node.key, RESIDUAL))
    return Step(
        child=where(is_accepted, child, -1),
        token=where(is_accepted, token, drawn),
        spent=plan.spent,
        regret=constant(plan.spent, 0.0, "float64"),
    )


def _find_candidates(target: Target, ids: Value, log_probs: Value) -> Candidates:
    num_vocab = target.p.size()
    is_token = (ids >= 0) & (ids < num_vocab)
    known = where(is_token, ids, num_vocab)
    q = where(is_token, where(is_token, log_probs, 0.0).exp(), 0.0)
    return Candidates(
        ids=known,
        q=q,
        p=where(is_token, target.p.at(where(is_token, ids, 0)), 0.0),
        outside=_replace(target.p, known, q * 0.0).sum(),
    )


def _replace(weights: Value, ids: Value, values: Value) -> Value:
    """``weights`` [V] with ``values`` [C] at the candidates."""
    longer = apply("Concat", weights, constant(weights, [0.0], "float64"), axis=0)  # V, which is no token, is last
    return longer.put(ids, values).at(weights.indices())


def _make_plan(node: Node, candidates: Candidates) -> Plan:
    strength, one = node.strength, constant(candidates.outside, 1.0, "float64")
    alpha = greatest(strength.first, (-strength.left).exp())
    lenient = _plan_lenient(candidates, where(strength.is_one_of(Rule.LENIENT), alpha, one))  # at 1 the exact rule
    typical = _plan_typical(node, candidates)
    is_typical = strength.is_one_of(Rule.TYPICAL) & ~(strength.left < typical.spent)
    is_clipped = strength.is_one_of(Rule.MENTORED_BUDGET, Rule.MENTORED_PRICE)
    clipped = _plan_mentored(strength, candidates)
    return choose_fields(is_clipped, clipped, choose_fields(is_typical, typical, lenient))


def _plan_lenient(candidates: Candidates, alpha: Value) -> Plan:
    """min(q, p / alpha) is kept, (p - q)+ added; 1 is the exact rule."""
    kept = least(candidates.q, candidates.p / alpha)
    added = greatest(candidates.p - candidates.q, 0.0)
    total = added.sum() + candidates.outside
    share = greatest(1.0 - kept.sum(), 0.0) / where(total > 0, total, 1.0)
    scale = where(total > 0, share, 0.0)
    one = constant(alpha, 1.0, "float64")
    spent = candidates.divergence(kept + scale * added, scale)
    return Plan(
        kept=kept,
        added=added,
        scale=one,
        spent=where(alpha >= 1.0, 0.0, spent),
        drops_child=constant(alpha, False, "bool"),
    )


def _plan_typical(node: Node, candidates: Candidates) -> Plan:
    """Tokens whose p is high enough are kept whole; after another, p without it."""
    q, p = candidates.q, candidates.p
    limit = least(node.strength.first, node.strength.second * (-node.target.entropy).exp())
    passes = (p > limit) | (p >= 1.0)
    kept = where(passes, q, 0.0)
    rejected = where(passes, 0.0, q / where(passes, 1.0, 1.0 - p))
    total = rejected.sum()
    return Plan(
        kept=kept,
        added=p,
        scale=constant(total, 1.0, "float64"),
        spent=candidates.divergence(kept + p * (total - rejected), total),
        drops_child=constant(total, True, "bool"),
    )


def _plan_mentored(strength: Strength, candidates: Candidates) -> Plan:
    """pi = clip(q, low p, high p) at a price, or in a budget where that is dearer than what is left."""
    priced = _plan_clipped(candidates, *_clip_by_price(candidates, strength.first))
    has_price = strength.is_one_of(Rule.MENTORED_PRICE)
    budget = where(has_price, strength.left, least(strength.first, strength.left))
    by_budget = _plan_clipped(candidates, *_clip_by_budget(candidates, budget))
    return choose_fields(has_price & (priced.spent <= strength.left), priced, by_budget)


def _plan_clipped(candidates: Candidates, low: Value, high: Value) -> Plan:
    pi = candidates.clip(low, high)
    return Plan(
        kept=least(pi, candidates.q),
        added=greatest(low * candidates.p - candidates.q, 0.0),
        scale=low,
        spent=greatest(candidates.divergence(pi, low), 0.0),
        drops_child=constant(low, False, "bool"),
    )


def _clip_by_price(candidates: Candidates, price: Value) -> tuple[Value, Value]:
    """The bounds with high / low = exp(price)."""

    def high_of(low: Value) -> Value:
        return greatest(low * price.exp(), 1.0)

    def is_short(low: Value) -> Value:
        return candidates.clip(low, high_of(low)).sum() + low * candidates.outside < 1.0

    low = halve("price", (-price).exp(), constant(price, 1.0, "float64"), is_short)
    return low, high_of(low)


def _clip_by_budget(candidates: Candidates, budget: Value) -> tuple[Value, Value]:
    """The bounds whose pi is closest to q with KL(pi || p) <= budget."""
    zero, one = (constant(budget, number, "float64") for number in (0.0, 1.0))
    infinity = constant(budget, _INFINITY, "float64")
    sides = _Sides(candidates)

    def narrow(_: Value, state: Sequence[Value]) -> LoopResult:
        below, above, low, high = state
        middle = (below + above) / 2.0
        bound, is_reached = sides.find_high(middle)
        fits = is_reached & (candidates.divergence(candidates.clip(middle, bound), middle) <= budget)
        after = (
            where(fits, below, middle),
            where(fits, middle, above),
            where(fits, middle, low),
            where(fits, bound, high),
        )
        return LoopResult(constant(middle, True, "bool"), after)

    _, _, low, high = loop("budget", constant(budget, STEPS, "int64"), [zero, one, one, one], narrow)
    is_free = candidates.divergence(candidates.q, zero) <= budget
    return where(is_free, zero, low), where(is_free, infinity, high)


class _Sides:
    """Candidates of p > 0 by rising q / p, for the upper bound at which pi's mass is 1."""

    def __init__(self, candidates: Candidates) -> None:
        q, p = candidates.q, candidates.p
        ratio = where(p > 0, q / where(p > 0, p, 1.0), _INFINITY)
        names = q.body.ops("TopK", ratio.name, ratio.size().unsqueeze(0).name, num_outputs=2, axis=-1, largest=0)
        order = Value(q.body, names[1], "int64")
        self._ratio, self._p, self._q = ratio.at(order), p.at(order), where(p > 0, q, 0.0).at(order)
        self._above = self._p.cumulative(exclusive=True, reverse=True)
        self._outside = candidates.outside

    def find_high(self, low: Value) -> tuple[Value, Value]:
        """The bound, and whether one reaches the mass."""
        p, above = self._p, self._above
        part = greatest(self._q, low * p)
        below = part.cumulative()
        whole = below + where(p > 0, where(p > 0, self._ratio, 0.0) * above, 0.0) + low * self._outside
        is_reached = (p > 0) & (whole >= 1.0)
        first = is_reached.first_true()
        base = (below - part).at(first) + low * self._outside
        rest = above.at(first) + p.at(first)
        return greatest((1.0 - base) / where(rest > 0, rest, 1.0), 1.0), is_reached.any()
