"""The words that the parts of ``LossyAccept`` share: a rule as it applies at a node, and what a node decided."""

import math
from dataclasses import dataclass, replace
from enum import IntEnum


class Rule(IntEnum):
    """Numbers of ``draftsmith_accept_rule``; what their two parameters are is said there."""

    EXACT = 0
    MENTORED_BUDGET = 1
    MENTORED_PRICE = 2
    LENIENT = 3
    TYPICAL = 4
    TOP_DELTA = 5
    THRESHOLD = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """A rule with its parameters at a node, and the nats that it may spend there."""

    rule: Rule
    first: float = 0.0
    second: float = 0.0
    left: float = math.inf

    def relaxed(self, factor: float) -> "Strength":
        """This rule scaled by a node's ``relaxation``: exact at 0, unchanged at 1."""
        if factor <= 0 or self.left <= 0:
            return replace(self, rule=Rule.EXACT)
        match self.rule:
            case Rule.LENIENT:
                return replace(self, first=math.exp(factor * math.log(self.first))).or_exact(self.first >= 1)
            case Rule.TYPICAL | Rule.EXACT:
                return self
            case Rule.TOP_DELTA:
                return replace(self, first=factor * self.first).or_exact(self.first <= 0 or self.second <= 1)
            case Rule.THRESHOLD:
                single, acc = (1 - factor * (1 - value) for value in (self.first, self.second))
                return replace(self, first=single, second=acc).or_exact(self.first >= 1 and self.second >= 1)
            case _:
                return replace(self, first=factor * self.first).or_exact(self.first <= 0)

    def or_exact(self, is_neutral: bool) -> "Strength":
        """``exact`` in this rule's place where ``is_neutral``."""
        return replace(self, rule=Rule.EXACT) if is_neutral else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a node decided: the child that is accepted (its place among the children) or None, the token that is emitted
    in either case, KL(result || p), and the greedy regret log p_max - log p(token)."""

    child: int | None
    token: int
    spent: float = 0.0
    regret: float = 0.0
