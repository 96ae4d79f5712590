"""Drafters: who guesses the next tokens. The protocol, and the one that needs no model, n-gram prompt lookup."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from .draft_tree import NO_DRAFT, DraftTree
from .sessions.base import FloatArray, Int32Array

MAX_MATCH = 5
"""Longest match that is told apart, and the highest evidence of a looked-up draft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftQuery:
    """What a drafter sees of a row: its cache slot, all its tokens int32 [n], and how it may draft.

    ``limit``: most nodes, 0 for none; ``depth``: longest branch; ``width``: branches followed a level. ``seed`` and
    ``inverse_temperature``: of the noise that the target's draws use (shared noise); seed None where the request is
    greedy. ``method``: one of ``contract.params.DRAFT_METHODS``.
    """

    slot: int
    tokens: Int32Array
    limit: int
    depth: int
    width: int = 1
    seed: int | None = None
    inverse_temperature: float = 1.0
    method: str = "auto"


class Drafter(Protocol):
    """Proposes one draft a row, in the rows' order."""

    def propose(self, queries: Sequence[DraftQuery]) -> list[DraftTree]: ...


@runtime_checkable
class FollowsTarget(Protocol):
    """A drafter that keeps a cache a slot and is told what the target did."""

    def observe(self, slot: int, position: int, features: FloatArray | None, count: int) -> None:
        """The target has cached ``count`` tokens of a slot from ``position`` on; ``features`` float32 [count, F] (None
        where the drafter reads none). ``position`` 0 begins a new sequence. The array is copied."""

    def copy_slot(self, source: int, destination: int) -> None:
        """A sequence moved to another slot."""

    def close(self) -> None:
        """Free the draft model."""


class NgramDrafter:
    """Prompt lookup: the tokens that followed the longest earlier occurrence of the text's end.

    Among occurrences of equal length the latest wins. Where what followed is shorter than the limit it is repeated
    (the text has that period). Stateless: nothing to roll back, nothing to keep per slot.
    """

    def __init__(self, min_match: int = 1, max_match: int = MAX_MATCH) -> None:
        self._min_match = min_match
        self._max_match = max_match

    def propose(self, queries: Sequence[DraftQuery]) -> list[DraftTree]:
        return [self.look_up(query.tokens, min(query.limit, query.depth)) for query in queries]

    def look_up(self, tokens: Int32Array, limit: int) -> DraftTree:
        """A chain of ``limit`` tokens after ``tokens`` int32 [n], or none."""
        last = len(tokens) - 1
        if limit <= 0:
            return NO_DRAFT
        ends = (tokens[:last] == tokens[last]).nonzero()[0]  # where the last token came before
        if not len(ends):
            return NO_DRAFT
        length = 1
        while length < self._max_match:
            before = ends[ends >= length]
            longer = before[tokens[before - length] == tokens[last - length]] if length <= last else before[:0]
            if not len(longer):
                break
            ends, length = longer, length + 1
        if length < self._min_match:
            return NO_DRAFT
        follows = tokens[int(ends[-1]) + 1 : last + 1][:limit].tolist()
        while len(follows) < limit:
            follows += follows[: limit - len(follows)]
        return DraftTree.chain(follows, evidence=min(length, MAX_MATCH))
