"""How long a target step takes, learned while serving."""

import math
from bisect import bisect_left, insort
from dataclasses import dataclass, field

_SPEED_RATE = 0.2
_SHAPE_RATE = 0.05
_CLIP = 0.2
_FRESH = 3
_COUNTED_SHARE = 0.5
_PRIOR_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_PRIOR_SLOPE = 0.03  # a token more costs this share of a step; measured values replace it


@dataclass(slots=True)
class Curve:
    """A piecewise linear function through (x, value) points, continued with its last slope."""

    xs: list[int] = field(default_factory=list)
    values: dict[int, float] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def put(self, x: int, value: float, count: int = 0) -> None:
        """Set the value at ``x``, a new point or an old one; ``count``: how many measurements it stands for."""
        if x not in self.values:
            insort(self.xs, x)
        self.values[x] = value
        self.counts[x] = count

    def is_fresh(self, x: int) -> bool:
        """True where the value at ``x`` is hardly more than a guess."""
        return min(self.counts[point] for point, weight in self.weights(x) if weight > 0) < _FRESH

    def correct(self, x: int, error: float) -> None:
        """Move the points around ``x`` by a logarithmic error: a guess follows it, a measured value a little."""
        weights = self.weights(x)
        most = max(weight for _, weight in weights)
        for point, weight in weights:
            share = max(0.0, weight) / most
            count = self.counts[point]
            step = error / (1 + count) if count < _FRESH else _SHAPE_RATE * max(-_CLIP, min(_CLIP, error))
            self.values[point] *= math.exp(share * step)
            self.counts[point] = count + (share > _COUNTED_SHARE)

    def weights(self, x: int) -> tuple[tuple[int, float], ...]:
        """The points that the value at ``x`` is made of, each with its weight."""
        xs = self.xs
        at = bisect_left(xs, x)
        if at < len(xs) and xs[at] == x:
            return ((x, 1.0),)
        if at == 0 or len(xs) == 1:
            return ((xs[0], 1.0),)
        at = min(at, len(xs) - 1)
        left, right = xs[at - 1], xs[at]
        share = (x - left) / (right - left)
        return ((left, 1.0 - share), (right, share))

    def value(self, x: int) -> float:
        """The function at ``x``, but never above a later point.

        More tokens never take less time, so such a point was measured while the machine did something else.
        """
        here = sum(weight * self.values[point] for point, weight in self.weights(x))
        return min([here, *(self.values[point] for point in self.xs if point > x)])


class CostModel:
    """Milliseconds of a step of B rows and T tokens a row: one curve over B for plain steps (T = 1), one over B * T for
    steps with drafts, and a factor common to both.

    A machine's speed drifts (clocks, other work), the curves' shape hardly does: a step that takes longer than expected
    moves the factor at once and the shape a little. The first step of a new shape is not counted: it sets things up.
    """

    def __init__(self) -> None:
        self._plain = Curve()
        self._drafted = Curve()
        for tokens in _PRIOR_TOKENS:
            self._plain.put(tokens, 1.0 + _PRIOR_SLOPE * tokens)
            self._drafted.put(tokens, 1.0 + _PRIOR_SLOPE * tokens)
        self._log_speed: float | None = None
        self._seen: set[tuple[int, int]] = set()

    def calibrate(self, times: dict[tuple[int, int], float]) -> None:
        """Replace the prior shape by measured steps, (B, T) -> milliseconds; at least one is plain and two are not."""
        self._plain, self._drafted = Curve(), Curve()
        for (rows, queries), ms in sorted(times.items()):
            curve, x = self._pick(rows, queries)
            curve.put(x, ms, _FRESH)
        self._log_speed = 0.0
        self._seen = set(times)

    def estimate(self, num_rows: int, num_queries: int) -> float:
        """Expected milliseconds (up to the common factor before anything was measured)."""
        return math.exp(self._log_speed or 0.0) * self._shape(num_rows, num_queries)

    def knows_plain(self, num_rows: int) -> bool:
        """False while the time of a plain step is a guess."""
        return not self._plain.is_fresh(num_rows)

    def observe(self, num_rows: int, num_queries: int, ms: float) -> None:
        """A step took ``ms``."""
        if (num_rows, num_queries) not in self._seen:
            self._seen.add((num_rows, num_queries))
            return
        if ms <= 0.0:
            return
        if self._log_speed is None:  # the first time counted sets the factor
            self._log_speed = math.log(ms / self._shape(num_rows, num_queries))
        error = math.log(ms / self.estimate(num_rows, num_queries))
        curve, x = self._pick(num_rows, num_queries)
        if not curve.is_fresh(x):
            self._log_speed += _SPEED_RATE * max(-1.0, min(1.0, error))
        curve.correct(x, error)

    def _shape(self, num_rows: int, num_queries: int) -> float:
        curve, x = self._pick(num_rows, num_queries)
        return max(curve.value(x), 1e-6)

    def _pick(self, num_rows: int, num_queries: int) -> tuple[Curve, int]:
        return (self._plain, num_rows) if num_queries == 1 else (self._drafted, num_rows * num_queries)
