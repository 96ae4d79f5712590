"""How long drafts should be: the length that gives most tokens a millisecond.

A step of B rows and T tokens a row costs time(B, T) and gives row b 1 + a + ... + a^k tokens, where a is the chance
that a drafted token is accepted and k <= T - 1 its draft's length. Both are measured while serving. Where no length
pays, drafting is off, and tried again now and then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .cost_model import CostModel
from .drafter import MAX_EVIDENCE, Draft

_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15, 19, 23, 31, 47, 63)
_PRIOR = (0.3, 0.2, 0.4, 0.55, 0.65, 0.75)  # chance of acceptance by evidence, before anything was seen
_PRIOR_WEIGHT = 4.0
_KEEP = 0.97  # of the old counts, a block
_MIN_GAIN = 1.02
_PROBE_FIRST, _PROBE_LAST = 16, 128
_PLAIN_INTERVAL = 64


@dataclass(slots=True)
class AcceptanceCounts:
    """Decayed counts, by evidence, of drafted tokens that were judged and of those that were accepted."""

    judged: list[float] = field(default_factory=lambda: [0.0] * (MAX_EVIDENCE + 1))
    accepted: list[float] = field(default_factory=lambda: [0.0] * (MAX_EVIDENCE + 1))

    def add(self, evidence: int, judged: int, accepted: int) -> None:
        """A block: ``judged`` tokens were looked at (the accepted ones and the first that was not)."""
        self.judged[evidence] = self.judged[evidence] * _KEEP + judged
        self.accepted[evidence] = self.accepted[evidence] * _KEEP + accepted

    def rate(self, evidence: int, prior: float) -> float:
        """The chance that a token is accepted, pulled to ``prior`` while little was seen."""
        return (self.accepted[evidence] + _PRIOR_WEIGHT * prior) / (self.judged[evidence] + _PRIOR_WEIGHT)


class DraftLengthPolicy(Protocol):
    """Says how much of each draft is scored, and learns from what came of it."""

    def choose(self, drafts: Sequence[Draft], histories: Sequence[AcceptanceCounts]) -> list[int]:
        """The length to which each row's draft is cut."""

    def learn(self, history: AcceptanceCounts, draft: Draft, num_accepted: int) -> None:
        """A row's draft was scored and ``num_accepted`` of it were emitted."""

    def observe_step(self, num_rows: int, num_queries: int, ms: float) -> None:
        """A step of so many rows and tokens a row took ``ms``."""


class FixedDraftLength:
    """Always scores drafts of up to one length: for tests and measurements."""

    def __init__(self, length: int) -> None:
        self._length = length

    def choose(self, drafts: Sequence[Draft], histories: Sequence[AcceptanceCounts]) -> list[int]:
        del histories
        return [min(self._length, len(draft.token_ids)) for draft in drafts]

    def learn(self, history: AcceptanceCounts, draft: Draft, num_accepted: int) -> None:
        """Nothing to learn."""

    def observe_step(self, num_rows: int, num_queries: int, ms: float) -> None:
        """Nothing to learn."""


class AdaptiveDraftLength:
    """The policy of the module's text. One common limit a step, since a step costs what its longest row costs."""

    def __init__(self, cost: CostModel) -> None:
        self.cost = cost
        self._total = AcceptanceCounts()
        self._num_skipped = 0
        self._probe_interval = _PROBE_FIRST
        self._num_drafted_steps = 0

    def choose(self, drafts: Sequence[Draft], histories: Sequence[AcceptanceCounts]) -> list[int]:
        lengths = [len(draft.token_ids) for draft in drafts]
        longest = max(lengths) if self.cost.knows_plain(len(drafts)) else 0
        limit = self._find_limit(lengths, self._rates(drafts, histories), longest) if longest else 0
        if limit:
            self._num_skipped, self._probe_interval = 0, _PROBE_FIRST
            self._num_drafted_steps += 1
            if self._num_drafted_steps > _PLAIN_INTERVAL:  # what a plain step costs must not be forgotten either
                limit = 0
        elif longest:
            limit = self._probe()
        if not limit:
            self._num_drafted_steps = 0
        return [min(limit, length) for length in lengths]

    def learn(self, history: AcceptanceCounts, draft: Draft, num_accepted: int) -> None:
        drafted = len(draft.token_ids)
        if drafted:
            judged = min(drafted, num_accepted + 1)
            history.add(draft.evidence, judged, num_accepted)
            self._total.add(draft.evidence, judged, num_accepted)

    def observe_step(self, num_rows: int, num_queries: int, ms: float) -> None:
        self.cost.observe(num_rows, num_queries, ms)

    def _rates(self, drafts: Sequence[Draft], histories: Sequence[AcceptanceCounts]) -> list[float]:
        total = self._total
        return [
            history.rate(draft.evidence, total.rate(draft.evidence, _PRIOR[draft.evidence]))
            for draft, history in zip(drafts, histories, strict=True)
        ]

    def _find_limit(self, lengths: list[int], rates: list[float], longest: int) -> int:
        num_rows = len(lengths)
        best, best_limit = num_rows / self.cost.estimate(num_rows, 1) * _MIN_GAIN, 0
        for limit in (*(length for length in _LENGTHS if length < longest), longest):
            tokens = sum(_expect_tokens(min(length, limit), rate) for length, rate in zip(lengths, rates, strict=True))
            speed = tokens / self.cost.estimate(num_rows, 1 + limit)
            if speed > best:
                best, best_limit = speed, limit
        return best_limit

    def _probe(self) -> int:
        """1 now and then while drafting does not pay, ever more rarely: what is learned may turn it on again."""
        self._num_skipped += 1
        if self._num_skipped < self._probe_interval:
            return 0
        self._num_skipped = 0
        self._probe_interval = min(2 * self._probe_interval, _PROBE_LAST)
        return 1


def _expect_tokens(length: int, rate: float) -> float:
    """1 + a + ... + a^length."""
    return length + 1.0 if rate >= 1.0 else (1.0 - rate ** (length + 1)) / (1.0 - rate)
