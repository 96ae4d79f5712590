"""Grows the draft tree of one row, level by level, by the chance of its nodes. Lists only; runs no model."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .draft_tree import ROOT, DraftTree
from .evidence import classify

_FOLLOWED_SHARE = 0.5
"""Less likely nodes than this share of a level's best are not followed: their children would hardly be scored."""


@dataclass(slots=True)
class TreeGrowth:
    """Nodes so far and, of the newest level, those that are followed (``frontier``): up to ``width`` likely ones.

    ``chances``: of each node, that it and its ancestors are accepted. ``sources``: index of the parent among the nodes
    that were fed at the level before (what ``hidden`` it continues).
    """

    width: int
    is_sampled: bool
    rates: Sequence[float]
    token_ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    evidence: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    frontier: list[int] = field(default_factory=lambda: [ROOT])
    _newest: int = 0  # first node of the newest level

    def add_level(self, token_ids: Sequence[Sequence[int]], chances: Sequence[Sequence[float]]) -> None:
        """Candidates, best first, of each node of the frontier: their ids (-1: none) and what the model gives them.

        The new frontier is the likeliest of them, best first.
        """
        self._newest = len(self.token_ids)
        for source, (parent, ids, values) in enumerate(zip(self.frontier, token_ids, chances, strict=False)):
            above = 1.0 if parent == ROOT else self.chances[parent]
            for token, value in zip(ids[: self._num_children], values, strict=False):
                if token < 0:
                    break
                evidence = classify(value, is_sampled=self.is_sampled)
                self.token_ids.append(token)
                self.parents.append(parent)
                self.evidence.append(evidence)
                self.chances.append(above * self.rates[evidence])
                self.sources.append(source)
        newest = range(self._newest, len(self.token_ids))
        best = sorted(newest, key=lambda node: -self.chances[node])[: self.width]
        self.frontier = [n for n in best if self.chances[n] >= _FOLLOWED_SHARE * self.chances[best[0]]]

    @property
    def _num_children(self) -> int:
        """Guesses kept of a node's candidates: a chain keeps one, a tree more than it follows."""
        return 1 if self.width == 1 else 2 * self.width

    @property
    def followed(self) -> list[tuple[float, int]]:
        """The frontier's chances and classes."""
        return [(self.chances[node], self.evidence[node]) for node in self.frontier]

    def narrow(self, width: int) -> None:
        """Follow the ``width`` likeliest nodes of the frontier alone, from now on in the order of the tree."""
        self.frontier = sorted(self.frontier[:width])

    def best_children(self) -> list[tuple[int, int]]:
        """Classes of the nodes that the newest level continues, each with that of its best child."""
        best: dict[int, int] = {}
        for node in range(self._newest, len(self.token_ids)):
            best.setdefault(self.parents[node], node)
        return [(self.evidence[parent], self.evidence[node]) for parent, node in best.items() if parent != ROOT]

    def finish(self, limit: int) -> DraftTree:
        """The ``limit`` likeliest nodes."""
        order = sorted(range(len(self.chances)), key=lambda node: -self.chances[node])[:limit]
        tree = DraftTree(token_ids=self.token_ids, parents=self.parents, evidence=self.evidence)
        return tree.keep(sorted(order))
