"""Classes of guesses that are accepted alike, and how often each class was.

Looked-up guesses are classed by the length of the match, a draft model's by the chance that the model gives them, apart
for greedy and for sampled requests (what a chance means differs: see ``candidates``).
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from .drafter import MAX_MATCH
from .model_value import GainCounts

_EDGES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9, 0.97)
_MIDDLES = (0.01, 0.035, 0.075, 0.15, 0.25, 0.37, 0.52, 0.67, 0.83, 0.94, 0.985)
NUM_CHANCE_CLASSES = len(_MIDDLES)
GREEDY = MAX_MATCH + 1
"""The first class of a draft model's guesses for greedy requests, ``SAMPLED`` for sampled ones."""
SAMPLED = GREEDY + NUM_CHANCE_CLASSES
NUM_CLASSES = SAMPLED + NUM_CHANCE_CLASSES
PRIORS = (0.3, 0.2, 0.4, 0.55, 0.65, 0.75, *_MIDDLES, *_MIDDLES)
"""Chance of acceptance by class, before anything was seen."""

_PRIOR_WEIGHT = 4.0
_LEVEL_WEIGHT = 3.0  # accepted guesses: a request like all others against what it was so far
_KEEP = 0.97  # of the old counts, a block


def classify(chance: float, *, is_sampled: bool) -> int:
    """The class of a draft model's guess, whose model gives it ``chance`` (0 to 1)."""
    return (SAMPLED if is_sampled else GREEDY) + bisect_right(_EDGES, chance)


@dataclass(slots=True)
class PaceCounts:
    """Decayed tokens a row and the time that they took, in times of plain steps."""

    tokens: float = 0.0
    steps: float = 0.0

    def add(self, tokens: float, steps: float, keep: float) -> None:
        """A step gave so many tokens a row and took as long as ``steps`` plain ones; ``keep``: of the old sums."""
        self.tokens = self.tokens * keep + tokens
        self.steps = self.steps * keep + steps

    def mean(self, prior: float, weight: float) -> float:
        """How many times as fast as plain decoding, pulled to ``prior`` while little was seen."""
        return (self.tokens + weight * prior) / (self.steps + weight)


@dataclass(slots=True)
class _Level:
    """Decayed sums of one drafter's guesses in a request: accepted, and expected to be by the rates of all requests."""

    accepted: float = 0.0
    expected: float = 0.0

    def add(self, accepted: float, expected: float) -> None:
        self.accepted = self.accepted * _KEEP + accepted
        self.expected = self.expected * _KEEP + expected

    @property
    def ratio(self) -> float:
        """Of guesses accepted to those expected: all classes of a hard text are accepted less often."""
        return (self.accepted + _LEVEL_WEIGHT) / (self.expected + _LEVEL_WEIGHT)


def _adjust(rate: float, ratio: float) -> float:
    """A class's rate of all requests for one that has this ratio; never beyond 1."""
    return rate * ratio if ratio < 1.0 else rate * ratio / (1.0 + rate * (ratio - 1.0))


@dataclass(slots=True)
class AcceptanceCounts:
    """Decayed counts, by class, of guesses that were judged and of those that were accepted.

    Of a request also ``gains``, what the draft model added to its steps, its ``pace`` and ``num_steps``.
    """

    judged: list[float] = field(default_factory=lambda: [0.0] * NUM_CLASSES)
    accepted: list[float] = field(default_factory=lambda: [0.0] * NUM_CLASSES)
    levels: tuple[_Level, _Level] = field(default_factory=lambda: (_Level(), _Level()))  # look-up, draft model
    gains: GainCounts = field(default_factory=GainCounts)
    pace: PaceCounts = field(default_factory=PaceCounts)
    num_steps: int = 0

    def add(self, evidence: int, judged: int, accepted: int) -> None:
        """A block: ``judged`` guesses of a class were looked at and ``accepted`` of them were right."""
        self.judged[evidence] = self.judged[evidence] * _KEEP + judged
        self.accepted[evidence] = self.accepted[evidence] * _KEEP + accepted

    def rate(self, evidence: int, prior: float) -> float:
        """The chance that a guess is accepted, pulled to ``prior`` while little was seen."""
        return (self.accepted[evidence] + _PRIOR_WEIGHT * prior) / (self.judged[evidence] + _PRIOR_WEIGHT)

    def compare(self, evidence: int, judged: int, accepted: int, prior: float) -> None:
        """The block against ``prior``, the class's rate of all requests."""
        self.levels[evidence >= GREEDY].add(accepted, judged * prior)

    def rates(self, priors: Sequence[float]) -> list[float]:
        """``rate`` of every class; ``priors``: of all requests, adjusted to this one."""
        ratios = [level.ratio for level in self.levels]
        return [
            (accepted + _PRIOR_WEIGHT * _adjust(prior, ratios[kind >= GREEDY])) / (judged + _PRIOR_WEIGHT)
            for kind, (accepted, judged, prior) in enumerate(zip(self.accepted, self.judged, priors, strict=True))
        ]
