"""What an evaluation found, whole or as far as it came."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .comparison import Compared, compare
from .draft_steps import DraftStep
from .lineup import Entry
from .plan import EvaluationPlan
from .rows import Row
from .summary import Figures, summarise


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A question that an engine had no room for."""

    question_id: str
    task: str
    temperature: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """``num_wanted``: questions times temperatures that were asked for; those in ``rows`` and ``skips`` are done.

    ``draft_steps``: by configuration that drafts with a model.
    """

    plan: EvaluationPlan
    entries: tuple[Entry, ...]
    rows: Sequence[Row]
    skips: Sequence[Skip]
    machine: Mapping[str, str]
    num_wanted: int
    draft_steps: Mapping[str, DraftStep] = field(default_factory=dict)

    @property
    def figures(self) -> list[Figures]:
        """The rows summed up."""
        return summarise(self.rows)

    @property
    def compared(self) -> list[Compared]:
        """The figures with their shares."""
        return compare(self.figures, self.entries)

    @property
    def num_done(self) -> int:
        """Questions times temperatures that are done."""
        return len({(row.question_id, row.temperature) for row in self.rows}) + len(self.skips)

    @property
    def is_complete(self) -> bool:
        """False where the run was interrupted."""
        return self.num_done >= self.num_wanted

    @property
    def mismatches(self) -> list[Row]:
        """Rows whose tokens are not plain decoding's."""
        return [row for row in self.rows if not row.matches]

    @property
    def num_compared(self) -> int:
        """Rows that are compared with plain decoding."""
        return sum(not row.is_baseline for row in self.rows)

    @property
    def skips_by_task(self) -> dict[str, int]:
        """How many were skipped, by task."""
        return dict(Counter(skip.task for skip in self.skips))
