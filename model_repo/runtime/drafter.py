"""Drafters: who guesses the next tokens. Here the one that needs no checkpoint, n-gram prompt lookup."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from .sessions.base import Int32Array

MAX_EVIDENCE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftQuery:
    """What a drafter sees of a row: its cache slot, all its tokens int32 [n], and how many it may draft."""

    slot: int
    tokens: Int32Array
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A chain of guesses (a tree of width 1).

    ``token_ids``: best first guess first, possibly none. ``evidence``: 0 to ``MAX_EVIDENCE``, a class of drafts that
    are accepted alike (here the length of the match), which the draft length policy learns from. ``q``: where tokens
    were drawn at random and not chosen, the float64 [V] distribution that each was drawn from.
    """

    token_ids: list[int]
    evidence: int = 0
    q: list[npt.NDArray[np.float64]] | None = None

    def cut(self, length: int) -> "Draft":
        """The first ``length`` tokens."""
        if length >= len(self.token_ids):
            return self
        return Draft(
            token_ids=self.token_ids[:length], evidence=self.evidence, q=None if self.q is None else self.q[:length]
        )


NO_DRAFT = Draft(token_ids=[])


class Drafter(Protocol):
    """Proposes one draft a row, in the rows' order."""

    def propose(self, queries: Sequence[DraftQuery]) -> list[Draft]: ...


class NgramDrafter:
    """Prompt lookup: the tokens that followed the longest earlier occurrence of the text's end.

    Among occurrences of equal length the latest wins. Where what followed is shorter than the limit it is repeated
    (the text has that period). Stateless: nothing to roll back, nothing to keep per slot.
    """

    def __init__(self, min_match: int = 1, max_match: int = MAX_EVIDENCE) -> None:
        self._min_match = min_match
        self._max_match = max_match

    def propose(self, queries: Sequence[DraftQuery]) -> list[Draft]:
        return [self._look_up(query.tokens, query.limit) if query.limit > 0 else NO_DRAFT for query in queries]

    def _look_up(self, tokens: Int32Array, limit: int) -> Draft:
        last = len(tokens) - 1
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
        return Draft(token_ids=follows, evidence=min(length, MAX_EVIDENCE))
