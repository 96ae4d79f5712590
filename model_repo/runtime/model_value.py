"""Whether running the draft model pays: what it adds to a step beyond look-up, and what it takes.

What it adds are tokens and nodes that are scored: those of the best draft with the model's guesses beyond those of the
best one without them, at the same step and by the same chances. They are kept by how sure look-up is (the class of its
first guess, 0 where it finds nothing), of each request and of all: where look-up is sure the model adds little.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .drafter import MAX_MATCH

NUM_LOOKUP_CLASSES = MAX_MATCH + 1

_CLASS_WEIGHT = 4.0  # all requests' mean against a class's
_REQUEST_WEIGHT = 6.0  # a class's mean against this request's
_KEEP_REQUEST = 0.93
_KEEP_ALL = 0.99
_MS_RATE = 0.2
_FAR_BEHIND = 16  # tokens: a row that the draft has to read more of is a matter of its own
_USUAL_BEHIND = 3  # tokens that a usual step reads: what the step before committed
_HORIZON = 16  # steps for which a request is expected to go on at its start


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What the model adds to a row's step: accepted tokens and scored nodes."""

    tokens: float
    nodes: float


_PRIOR_GAIN = Gain(tokens=0.5, nodes=3.0)


@dataclass(slots=True)
class GainCounts:
    """Decayed sums by class of look-up: model steps and what they gained."""

    steps: list[float] = field(default_factory=lambda: [0.0] * NUM_LOOKUP_CLASSES)
    tokens: list[float] = field(default_factory=lambda: [0.0] * NUM_LOOKUP_CLASSES)
    nodes: list[float] = field(default_factory=lambda: [0.0] * NUM_LOOKUP_CLASSES)

    def add(self, lookup: int, gain: Gain, keep: float) -> None:
        """A step in which look-up had a guess of class ``lookup`` gained so much; ``keep``: of the old sums."""
        self.steps[lookup] = self.steps[lookup] * keep + 1.0
        self.tokens[lookup] = self.tokens[lookup] * keep + gain.tokens
        self.nodes[lookup] = self.nodes[lookup] * keep + gain.nodes

    def mean(self, lookup: int, prior: Gain, weight: float) -> Gain:
        """The class's gain, pulled to ``prior`` while little was seen."""
        steps = self.steps[lookup] + weight
        return Gain(
            tokens=(self.tokens[lookup] + weight * prior.tokens) / steps,
            nodes=(self.nodes[lookup] + weight * prior.nodes) / steps,
        )

    def overall(self, prior: Gain, weight: float) -> Gain:
        """The gain whatever the class."""
        steps = sum(self.steps) + weight
        return Gain(
            tokens=(sum(self.tokens) + weight * prior.tokens) / steps,
            nodes=(sum(self.nodes) + weight * prior.nodes) / steps,
        )


@dataclass(slots=True)
class ModelGain:
    """What the model adds, of all requests."""

    _all: GainCounts = field(default_factory=GainCounts)

    def add(self, request: GainCounts, lookup: int, gain: Gain) -> None:
        """A row's step with the model gained so much."""
        request.add(lookup, gain, _KEEP_REQUEST)
        self._all.add(lookup, gain, _KEEP_ALL)

    def expect(self, request: GainCounts, lookup: int) -> Gain:
        """What the model would add to a row's next step."""
        usual = self._all.mean(lookup, self._all.overall(_PRIOR_GAIN, _CLASS_WEIGHT), _CLASS_WEIGHT)
        return request.mean(lookup, usual, _REQUEST_WEIGHT)


@dataclass(slots=True)
class DraftCost:
    """Milliseconds that the draft model takes: a usual step, by number of rows, and what reading far behind adds.

    A row that drafted without the model for some steps is behind, and reading is charged to the step that asks for it:
    where look-up does well the model may never be asked again, and need not read at all.
    """

    _usual: dict[int, float] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)
    _token_ms: float | None = None

    def usual(self, num_rows: int) -> float:
        """Of a step of so many rows, 0 before any is known. An unknown number costs what the nearest known one does,
        and half as much a row for rows beyond it (a step has a cost of its own)."""
        if not self._usual:
            return 0.0
        known = min(self._usual, key=lambda rows: abs(rows - num_rows))
        return self._usual[known] * max(1.0, 0.5 + 0.5 * num_rows / known)

    def catch_up(self, num_behind: int) -> float:
        """Of reading ``num_behind`` tokens of a row, beyond a usual step."""
        return (self._token_ms or 0.0) * max(0, num_behind - _USUAL_BEHIND)

    def observe(self, num_behind: Sequence[int], ms: float) -> None:
        """The model ran for rows that were so many tokens behind. The first step of a kind is not counted."""
        num_rows = len(num_behind)
        far = sum(count for count in num_behind if count > _FAR_BEHIND)
        if far:
            token_ms = max(0.0, ms - self.usual(num_rows)) / far
            self._token_ms = token_ms if self._token_ms is None else self._token_ms + 0.5 * (token_ms - self._token_ms)
        elif num_rows in self._seen:
            ms = max(0.0, ms - sum(map(self.catch_up, num_behind)))
            old = self._usual.get(num_rows, ms)
            self._usual[num_rows] = old + _MS_RATE * (min(ms, 2 * old) - old)
        else:
            self._seen.add(num_rows)


def spread_catch_up(ms: float, num_behind: int, num_steps: int) -> float:
    """A step's share of what reading costs. A prompt is read once for a request: one that has taken ``num_steps`` is
    expected to go on for as long again."""
    return ms / (_HORIZON + num_steps) if num_behind > _FAR_BEHIND else ms
