"""What LossyAccept's rules share at a node: the rule's strength, its children, a coin's divergence, what is decided.

As ``plugins/reference/accept_step.py`` and ``accept_chosen.py`` say it. N nodes, V tokens; float64, int64 and bool.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from draftsmith.plugins.reference.accept_step import Rule

from .accept_target import RESIDUAL, RowParams, Target, position_uniform
from .function_values import LoopResult, Value, as_value, choose, constant, loop, where

STEPS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """A rule at a node: ``rule`` int64, its parameters, and the nats that it may spend."""

    rule: Value
    first: Value
    second: Value
    left: Value

    def is_one_of(self, *rules: Rule) -> Value:
        """bool."""
        found = self.rule.equals(int(rules[0]))
        for rule in rules[1:]:
            found = found | self.rule.equals(int(rule))
        return found


def find_strength(params: RowParams, spent: Value, factor: Value) -> Strength:
    """The row's rule scaled by ``factor`` in [0, 1]; exact where that is 0 or nothing is left to spend."""
    left = params.left - spent
    given = Strength(rule=params.rule, first=params.first, second=params.second, left=left)
    first, second = params.first, params.second
    lenient, top_delta = given.is_one_of(Rule.LENIENT), given.is_one_of(Rule.TOP_DELTA)
    threshold, mentored = (
        given.is_one_of(Rule.THRESHOLD),
        given.is_one_of(Rule.MENTORED_BUDGET, Rule.MENTORED_PRICE),
    )
    is_neutral = (
        (lenient & (first >= 1.0))
        | (top_delta & ((first <= 0.0) | (second <= 1.0)))
        | (threshold & (first >= 1.0) & (second >= 1.0))
        | (mentored & (first <= 0.0))
        | (factor <= 0.0)
        | (left <= 0.0)
    )
    return Strength(
        rule=where(is_neutral, 0, params.rule),
        first=choose(
            [
                (lenient, (factor * where(lenient, first, 1.0).log()).exp()),
                (threshold, 1.0 - factor * (1.0 - first)),
                (top_delta | mentored, factor * first),
            ],
            first,
        ),
        second=where(threshold, 1.0 - factor * (1.0 - second), second),
        left=left,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Children:
    """Of a node: ``is_child`` bool [N] (of equal siblings the first), their ``tokens`` int64 [N] (0: none), p of them
    (``probabilities`` [N]), together (``mass``) and of all others (``outside``); ``is_token`` bool [V]: a child's."""

    is_child: Value
    tokens: Value
    probabilities: Value
    mass: Value
    outside: Value
    is_token: Value

    def place_of(self, token: Value) -> Value:
        """The node of a token, -1 where none is."""
        found = self.is_child & self.tokens.equals(token)
        return where(found.any(), found.first_true(), -1)

    def pick(self, goal: Value) -> Value:
        """The child at which the cumulative sum passes ``goal``, else the last of a probability above 0."""
        is_possible = self.probabilities > 0
        passes = is_possible & (self.probabilities.cumulative() > goal)
        return where(passes.any(), passes.first_true(), is_possible.last_true())


def find_children(target: Target, is_child: Value, tokens: Value) -> Children:
    """``is_child`` bool [N] and ``tokens`` int64 [N] of the node's children, equal ones among them."""
    num_vocab = target.p.size()
    is_known = is_child & (tokens >= 0) & (tokens < num_vocab)
    known = where(is_known, tokens, 0)
    is_equal = known.unsqueeze(0).equals(known.unsqueeze(1)) & is_known.unsqueeze(0)
    is_first = is_known & ~(is_equal & tokens.is_before()).any(1)
    marked = target.p.filled(0.0, "float64").put(known, is_first.cast("float64"), reduction="max") > 0
    probabilities = where(is_first, target.p.at(known), 0.0)
    mass = probabilities.sum()
    return Children(
        is_child=is_first,
        tokens=known,
        probabilities=probabilities,
        mass=where(mass < 1.0, mass, 1.0),
        outside=where(marked, 0.0, target.p).sum(),
        is_token=marked,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a node decided, scalars: the child's node or -1, the token, what was spent, the greedy regret."""

    child: Value
    token: Value
    spent: Value
    regret: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """A draw from p: the child's node or -1, the coin, and the token where noise is shared."""

    child: Value
    coin: Value
    shared: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What decides at a node above temperature 0."""

    target: Target
    children: Children
    strength: Strength
    key: Value
    is_shared: Value

    def settle(self, draw: Draw, bound: Value | float, spent: Value | float) -> Step:
        """The child that was drawn, else a token outside, which the coin's part above ``bound`` picks."""
        children = self.children
        above = as_value(draw.coin, bound, "float64")
        is_left_over = ~self.is_shared & (above < 1.0)
        rest = (draw.coin - above) / where(is_left_over, 1.0 - above, 1.0)
        uniform = where(is_left_over, rest, position_uniform(self.key, RESIDUAL))
        drawn = self.target.draw_weighted(where(children.is_token, 0.0, self.target.p), uniform)
        keeps = self.is_shared & (children.place_of(draw.shared) < 0)
        has_child = draw.child >= 0
        accepted = children.tokens.at(where(has_child, draw.child, 0))
        zero = constant(draw.coin, 0.0, "float64")
        return Step(
            child=draw.child,
            token=choose([(has_child, accepted), (keeps, draw.shared)], drawn),
            spent=as_value(zero, spent, "float64"),
            regret=zero,
        )

    def accept(self, draw: Draw, place: Value, spent: Value) -> Step:
        """The child at a place."""
        return self.settle(replace(draw, child=place), 0.0, spent)


def divergence_term(new: Value, old: Value) -> Value:
    """new log(new / old), 0 where ``new`` is not above 0."""
    ratio = where((new > 0) & (old > 0), new / where(old > 0, old, 1.0), 1.0)
    return where(new > 0, where(old > 0, new * ratio.log(), math.inf), 0.0)


def binary_divergence(new: Value, old: Value) -> Value:
    """KL of a coin against another."""
    return divergence_term(new, old) + divergence_term(1.0 - new, 1.0 - old)


def halve(label: str, low: Value, high: Value, is_low: Callable[[Value], Value]) -> Value:
    """The last ``low`` of a bisection: the middle becomes it where ``is_low`` holds there, else ``high``."""

    def half(_: Value, state: Sequence[Value]) -> LoopResult:
        below, above = state
        middle = (below + above) / 2.0
        goes_up = is_low(middle)
        state_after = (where(goes_up, middle, below), where(goes_up, above, middle))
        return LoopResult(constant(middle, True, "bool"), state_after)

    return loop(label, constant(low, STEPS, "int64"), [low, high], half)[0]
