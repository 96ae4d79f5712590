"""What an engine and its drafters ask of a policy, and the one that always drafts alike. ``adaptive`` has the one that
weighs cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .draft_tree import DraftTree
from .evidence import PRIORS, AcceptanceCounts
from .level_value import LevelOffer


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOffer:
    """A row for which the draft model may run. ``row``: its index in the step. ``looked_up``: what look-up found.
    ``num_behind``: tokens that the draft model would have to read first. ``is_fixed``: it runs whatever it costs."""

    row: int
    looked_up: DraftTree
    num_behind: int
    is_fixed: bool


class DraftGuide(Protocol):
    """What drafters ask while they draft."""

    def pick_rows(self, offers: Sequence[RowOffer]) -> list[int]:
        """The rows, of those offered, for which the draft model should run this step; those fixed are among them."""

    def rates(self) -> list[float]:
        """Chance of acceptance by class of guesses, of the step's rows."""

    def pick_width(self, offer: LevelOffer) -> int:
        """How many nodes of each row one more level should follow, 0 where it does not pay."""

    def observe_children(self, classes: Sequence[tuple[int, int]]) -> None:
        """Classes of nodes that were followed, each with that of its best child."""

    def observe_level(self, num_nodes: int, ms: float) -> None:
        """A level in which the draft model read ``num_nodes``, of all rows, took ``ms``."""


class DraftPolicy(DraftGuide, Protocol):
    """Says how much of each draft is scored, and learns from what came of it. A step is ``begin_step``, the guide's
    calls, ``prune``, ``learn`` of each row that had a draft, ``observe_step``."""

    def begin_step(self, histories: Sequence[AcceptanceCounts]) -> None:
        """A decode step of rows with these histories begins."""

    def prune(self, drafts: Sequence[DraftTree]) -> list[DraftTree]:
        """Each row's draft with the nodes that are to be scored."""

    def learn(self, history: AcceptanceCounts, draft: DraftTree, path: Sequence[int]) -> None:
        """A row's draft was scored and the nodes of ``path`` were accepted."""

    def observe_step(self, step: "StepReport") -> None:
        """A decode step is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One decode step: B rows, T tokens a row, tokens that all rows got together, milliseconds of drafting and of the
    rest."""

    num_rows: int
    num_queries: int
    num_tokens: int
    draft_ms: float
    verify_ms: float


class FixedDraftSize:
    """Always scores drafts of up to one size, the first nodes: for tests and measurements."""

    def __init__(self, size: int) -> None:
        self._size = size

    def begin_step(self, histories: Sequence[AcceptanceCounts]) -> None:
        """Nothing to prepare."""

    def pick_rows(self, offers: Sequence[RowOffer]) -> list[int]:
        return [offer.row for offer in offers if self._size > 0 or offer.is_fixed]

    def rates(self) -> list[float]:
        return list(PRIORS)

    def pick_width(self, offer: LevelOffer) -> int:
        return max(map(len, offer.nodes))

    def observe_children(self, classes: Sequence[tuple[int, int]]) -> None:
        """Nothing to learn."""

    def observe_level(self, num_nodes: int, ms: float) -> None:
        """Nothing to learn."""

    def prune(self, drafts: Sequence[DraftTree]) -> list[DraftTree]:
        return [draft.keep(range(min(self._size, len(draft)))) for draft in drafts]

    def learn(self, history: AcceptanceCounts, draft: DraftTree, path: Sequence[int]) -> None:
        """Nothing to learn."""

    def observe_step(self, step: StepReport) -> None:
        """Nothing to learn."""
