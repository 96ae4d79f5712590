"""Counters of the engine and where its time goes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .draft_tree import DraftTree

PHASES = ("prefill", "draft", "verify", "accept", "stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """A snapshot. Times are milliseconds of the loop's thread, summed since the start, by phase: ``prefill`` (with the
    first token's choice), ``draft``, ``verify`` (the target step), ``accept`` (sampling), ``stream`` (callbacks).
    ``judged_by_depth[i]``: drafts whose path had reached depth i and that had nodes at depth i + 1;
    ``accepted_by_depth[i]``: those of which one was accepted."""

    num_slots: int
    num_active: int
    num_waiting: int
    num_requests: int
    num_failed: int
    num_cancelled: int
    num_prompt_tokens: int
    num_output_tokens: int
    num_steps: int
    num_rows: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int
    judged_by_depth: tuple[int, ...]
    accepted_by_depth: tuple[int, ...]
    phase_ms: dict[str, float]

    @property
    def acceptance_rate(self) -> float:
        """Accepted / drafted, 0 without drafts."""
        return self.num_accepted_draft_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0

    @property
    def tokens_per_row(self) -> float:
        """Tokens that a row gets from a target step, 0 before the first."""
        return (self.num_rows + self.num_accepted_draft_tokens) / self.num_rows if self.num_rows else 0.0

    @property
    def rows_per_step(self) -> float:
        """Mean batch of the target steps."""
        return self.num_rows / self.num_steps if self.num_steps else 0.0


@dataclass(slots=True)
class Counters:
    """What the loop counts as it goes."""

    num_failed: int = 0
    num_cancelled: int = 0
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_steps: int = 0
    num_rows: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    judged_by_depth: list[int] = field(default_factory=list)
    accepted_by_depth: list[int] = field(default_factory=list)
    phase_ms: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    def count_draft(self, draft: DraftTree, path: Sequence[int]) -> None:
        """A draft was scored and the nodes of ``path`` were accepted."""
        self.num_draft_tokens += len(draft)
        self.num_accepted_draft_tokens += len(path)
        goes_on = not path or path[-1] in draft.parents
        judged = len(path) + (goes_on and len(draft) > 0)
        while len(self.judged_by_depth) < judged:
            self.judged_by_depth.append(0)
            self.accepted_by_depth.append(0)
        for depth in range(judged):
            self.judged_by_depth[depth] += 1
            self.accepted_by_depth[depth] += depth < len(path)

    def snapshot(self, *, num_slots: int, num_active: int, num_waiting: int, num_requests: int) -> EngineStats:
        """The counts now."""
        return EngineStats(
            num_slots=num_slots,
            num_active=num_active,
            num_waiting=num_waiting,
            num_requests=num_requests,
            num_failed=self.num_failed,
            num_cancelled=self.num_cancelled,
            num_prompt_tokens=self.num_prompt_tokens,
            num_output_tokens=self.num_output_tokens,
            num_steps=self.num_steps,
            num_rows=self.num_rows,
            num_draft_tokens=self.num_draft_tokens,
            num_accepted_draft_tokens=self.num_accepted_draft_tokens,
            judged_by_depth=tuple(self.judged_by_depth),
            accepted_by_depth=tuple(self.accepted_by_depth),
            phase_ms=dict(self.phase_ms),
        )
