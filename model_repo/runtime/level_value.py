"""Whether one more level of a draft tree pays, and how many nodes of a row it should continue.

A node that is followed gets children. Its best child is accepted with the chance of the node times its own, which is
not known before the draft model has run; what is known is how sure such children were of late, by how sure the node
itself is. A child is worth what its chance exceeds the price of scoring it by: others would not be scored.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

_KEEP = 0.99  # of the old counts, a child
_PRIOR_WEIGHT = 8.0  # children: all nodes' children against a node's of one class
_MS_RATE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelOffer:
    """The nodes that may be followed, of the rows that still grow.

    ``nodes``: of each row, likeliest first, (chance that the node and its ancestors are accepted, its class).
    ``num_rows``: of the draft model's step. ``depth``: of the nodes, 1 for the first.
    """

    nodes: Sequence[Sequence[tuple[float, int]]]
    num_rows: int
    depth: int


@dataclass(slots=True)
class ChildCounts:
    """Decayed counts of best children, by class of their parents and by their own class, of one kind of classes.

    ``first``, ``count``: the kind's classes; children are assumed to be spread evenly over them before any was seen.
    """

    first: int
    count: int
    by_parent: list[list[float]] = field(init=False)
    overall: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.by_parent = [[0.0] * self.count for _ in range(self.count)]
        self.overall = [1.0 / self.count] * self.count

    def add(self, parent: int, child: int) -> None:
        """The best child of a node of class ``parent`` is of class ``child``."""
        for counts in (self.overall, self.by_parent[parent - self.first]):
            counts[:] = [count * _KEEP for count in counts]
            counts[child - self.first] += 1.0

    def expect_gain(self, chance: float, parent: int, rates: Sequence[float], price: float) -> float:
        """Tokens that the best child of a node is worth; ``rates``: chance of acceptance by class."""
        counts = self.by_parent[parent - self.first]
        scale = _PRIOR_WEIGHT / sum(self.overall)
        gain = 0.0
        for child, (own, usual) in enumerate(zip(counts, self.overall, strict=True), start=self.first):
            gain += (own + scale * usual) * max(0.0, chance * rates[child] - price)
        return gain / (sum(counts) + _PRIOR_WEIGHT)


@dataclass(slots=True)
class LevelCost:
    """Milliseconds of a level, by the number of nodes that the draft model reads in it.

    A number never seen is taken to cost what the nearest one does, so that it is tried; one that is seen never more
    than as many nodes of a smaller level would, so that one slow step does not rule it out. Less than half of what it
    seemed to take is believed at once: other work makes a level slower, never faster.
    """

    _ms: dict[int, float] = field(default_factory=dict)
    _once: set[int] = field(default_factory=set)  # the first of a kind sets things up: the second replaces it

    def observe(self, num_nodes: int, ms: float) -> None:
        """A level took ``ms``."""
        old = self._ms.get(num_nodes)
        if old is None:
            self._once.add(num_nodes)
            self._ms[num_nodes] = ms
        elif num_nodes in self._once:
            self._once.discard(num_nodes)
            self._ms[num_nodes] = min(ms, old)
        else:
            self._ms[num_nodes] = ms if ms < old / 2 else old + _MS_RATE * (min(ms, 2 * old) - old)

    def estimate(self, num_nodes: int) -> float:
        """0 before any is known."""
        if not self._ms:
            return 0.0
        if num_nodes not in self._ms:
            return self._ms[min(self._ms, key=lambda known: abs(known - num_nodes))]
        return min(ms * max(1.0, num_nodes / known) for known, ms in self._ms.items() if known <= num_nodes)
