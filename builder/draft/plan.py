"""What an engine's draft is built from: an opened draft and how its head finds candidates."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..checkpoint.source import Checkpoint
from ..errors import UsageError
from ..spec.draft import DraftSpec, HeadKind
from ..spec.ranking import Ranking
from .checkpoint import DraftCheckpoint
from .token_ids import find_id_fault

NUM_OUTPUTS = 16
MAX_OUTPUTS = 64
NO_TOKEN = -1
"""In groups that are not full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftPlan:
    """``draft``: an EAGLE-3 draft, or a small language model with the target's vocabulary.

    ``ranking``: for the heads "speculative" and "grouped" alone. ``target_ids`` int32 [H]: the tokens of the head
    "subset"; None where the draft has a subset of its own. ``window``: draft keys at distance < window, 0 for all, None
    for the draft's own. ``num_outputs``: candidates that the runtime gets of each row. ``name``: of the draft, for the
    manifest.
    """

    draft: DraftCheckpoint | Checkpoint
    head: HeadKind
    name: str
    ranking: Ranking | None = None
    target_ids: npt.NDArray[np.int32] | None = None
    window: int | None = None
    num_outputs: int = NUM_OUTPUTS

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """Target layers whose inputs the draft reads, () for a language model."""
        return self.draft.spec.feature_layers if isinstance(self.draft, DraftCheckpoint) else ()

    def check(self) -> None:
        """Raise ``UsageError`` for parts that do not go together."""
        if not 1 <= self.num_outputs <= MAX_OUTPUTS:
            raise UsageError("draft num_outputs", expected=f"1 to {MAX_OUTPUTS}", found=str(self.num_outputs))
        if not isinstance(self.draft, DraftCheckpoint):
            self._check_model()
            return
        if (self.head in ("speculative", "grouped")) != (self.ranking is not None):
            expected = "a ranking for the heads speculative and grouped alone"
            raise UsageError("draft head", expected=expected, found=f"{self.head}, ranking: {self.ranking is not None}")
        if self.ranking is not None:
            self._check_ranking(self.ranking, self.draft.spec)
        own = self.draft.target_ids
        if own is not None and self.head not in ("full", "subset"):
            raise UsageError("draft head", expected="subset, for a draft with a subset of its own", found=self.head)
        if self.head == "subset" and own is None and self.target_ids is None:
            raise UsageError("draft head", expected="the tokens of the subset", found="none")
        if self.target_ids is not None:
            self._check_subset(self.target_ids, own, self.draft.spec.vocab_size)

    def _check_subset(
        self, target_ids: npt.NDArray[np.int32], own: npt.NDArray[np.int32] | None, vocab_size: int
    ) -> None:
        if self.head != "subset" and own is None:
            raise UsageError("draft subset", expected="the head subset beside it", found=self.head)
        if own is not None and not np.array_equal(own, target_ids):
            raise UsageError("draft subset", expected="the draft's own", found="another")
        if target_ids.ndim != 1 or not 1 <= len(target_ids) <= vocab_size or target_ids.dtype.kind not in "iu":
            expected = f"1 to {vocab_size} token ids, whole numbers in a row"
            raise UsageError("draft subset", expected=expected, found=f"{target_ids.dtype} {list(target_ids.shape)}")
        fault = find_id_fault(target_ids, vocab_size)
        if fault is not None:
            raise UsageError("draft subset", expected=fault[0], found=fault[1])

    def _check_ranking(self, ranking: Ranking, spec: DraftSpec) -> None:
        groups = ranking.groups
        if (groups is not None) != (self.head == "grouped"):
            raise UsageError("draft ranking", expected=f"one for the head {self.head}", found="another")
        if groups is not None and not ranking.is_exact:
            raise UsageError("draft ranking", expected="exact logits behind a ranking of groups", found="scores alone")
        rows = spec.vocab_size if groups is None else len(groups)
        wanted = [(ranking.rank, spec.hidden_size), (rows, ranking.rank)]
        found = [ranking.down.shape, ranking.vocabulary.shape]
        if found != wanted:
            expected = f"matrices {wanted[0]} and {wanted[1]}, for this draft"
            raise UsageError("draft ranking", expected=expected, found=f"{found[0]} and {found[1]}")
        fault = None if groups is None else find_id_fault(groups[groups != NO_TOKEN], spec.vocab_size)
        if fault is not None:
            raise UsageError("draft ranking's groups", expected=fault[0], found=fault[1])

    def _check_model(self) -> None:
        if self.head != "full" or self.ranking is not None or self.target_ids is not None:
            raise UsageError("draft head", expected="full for a language model as draft", found=self.head)
        if self.window:
            raise UsageError("draft window", expected="none for a language model as draft", found=str(self.window))
