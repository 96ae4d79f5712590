"""What a build was asked for of its draft: options only. Opens no files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import UsageError
from .ranges import check_range
from .spec.draft import HEAD_KINDS

AUTO, NONE = "auto", "none"
MAX_CANDIDATES = 8192
MAX_RANK = 1024
DEFAULT_CANDIDATES = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftChoice:
    """``source``: a draft's folder or file, "auto" for one that ships for this target (or none), "none" for look-up
    alone. ``head``: one of ``HEAD_KINDS``, None for what suits the draft. ``num_candidates`` and ``rank`` of a
    speculative vocabulary, ``vocabulary``: a file of ``fit-vocabulary`` or ``choose-vocabulary``, ``window``: draft
    keys at distance < window (0: all); None for the defaults.
    """

    source: str = AUTO
    head: str | None = None
    num_candidates: int | None = None
    rank: int | None = None
    vocabulary: Path | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        if self.head is not None and self.head not in HEAD_KINDS:
            raise UsageError("--draft-head", expected=" or ".join(HEAD_KINDS), found=repr(self.head))
        check_range("--draft-candidates", self.num_candidates, 1, MAX_CANDIDATES)
        check_range("--draft-rank", self.rank, 1, MAX_RANK)
        check_range("--draft-window", self.window, 0, 1 << 20)
        options = (self.head, self.num_candidates, self.rank, self.vocabulary, self.window)
        if self.source == NONE and any(option is not None for option in options):
            raise UsageError("--draft", expected="a draft beside the other --draft options", found="none")

    def numbers(self) -> dict[str, Any]:
        """What changes a package's content, for its fingerprint (no paths)."""
        return {
            "head": self.head,
            "num_candidates": self.num_candidates,
            "rank": self.rank,
            "window": self.window,
        }
