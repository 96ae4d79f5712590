"""A draft: a tree of guesses after the last token. Structure only; who guesses and what pays is decided elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .sessions.base import BoolArray, Int32Array

ROOT = -1
"""Parent of the first guesses: the last token that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTree:
    """Node i guesses ``token_ids[i]`` after node ``parents[i]`` (``ROOT``: after the last token); parents come first.

    ``evidence``: of each node, a class of guesses that are accepted alike (see ``adaptive``). ``q``: where tokens were
    drawn at random and not chosen, the float64 [V] distribution of each; for chains alone.
    """

    token_ids: list[int]
    parents: list[int]
    evidence: list[int]
    q: list[npt.NDArray[np.float64]] | None = None

    @classmethod
    def chain(
        cls, token_ids: Sequence[int], *, evidence: int = 0, q: list[npt.NDArray[np.float64]] | None = None
    ) -> "DraftTree":
        """Each token after the one before: a tree of width 1."""
        count = len(token_ids)
        return cls(token_ids=list(token_ids), parents=list(range(-1, count - 1)), evidence=[evidence] * count, q=q)

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def is_chain(self) -> bool:
        """True where every node follows the one before it."""
        return self.parents == list(range(-1, len(self.parents) - 1))

    def depths(self) -> list[int]:
        """Of each node, the tokens from the last known one to it: 1 and more."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return depths

    def find_child(self, parent: int, token: int) -> int:
        """The node that guesses ``token`` after ``parent``; ``ROOT`` where there is none."""
        for node in range(parent + 1, len(self.parents)):
            if self.parents[node] == parent and self.token_ids[node] == token:
                return node
        return ROOT

    def keep(self, nodes: Sequence[int]) -> "DraftTree":
        """The tree of some nodes, parents included, in the order given (parents first)."""
        if len(nodes) == len(self.parents) and list(nodes) == list(range(len(nodes))):
            return self
        places = {node: place for place, node in enumerate(nodes)}
        places[ROOT] = ROOT
        return DraftTree(
            token_ids=[self.token_ids[n] for n in nodes],
            parents=[places[self.parents[n]] for n in nodes],
            evidence=[self.evidence[n] for n in nodes],
            q=None if self.q is None else [self.q[n] for n in nodes],
        )

    def fill_mask(self, mask: BoolArray) -> None:
        """Write who sees whom, bool [1 + n, 1 + n]: row 0 is the last token, row i + 1 node i, its ancestors and
        itself."""
        mask[:] = False
        mask[:, 0] = True
        for node, parent in enumerate(self.parents, start=1):
            if parent != ROOT:
                mask[node, : parent + 2] = mask[parent + 1, : parent + 2]
            mask[node, node] = True

    def offsets(self) -> Int32Array:
        """Position of the last token (0) and of each node behind it, int32 [1 + n]."""
        return np.array([0, *self.depths()], np.int32)


def chain_mask(num_rows: int, num_tokens: int) -> BoolArray:
    """Every token sees those before it and itself: bool [B, T, T]; to be read alone, since short ones are kept."""
    # Few shapes, every step; long prompts' masks are made anew.
    return _short_chain_mask(num_rows, num_tokens) if num_tokens <= 64 else _make_chain_mask(num_rows, num_tokens)


def _make_chain_mask(num_rows: int, num_tokens: int) -> BoolArray:
    triangle = np.tril(np.ones((num_tokens, num_tokens), np.bool_))
    return np.ascontiguousarray(np.broadcast_to(triangle, (num_rows, num_tokens, num_tokens)))


_short_chain_mask = lru_cache(maxsize=512)(_make_chain_mask)

NO_DRAFT = DraftTree(token_ids=[], parents=[], evidence=[])
