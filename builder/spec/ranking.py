"""The ranking of a speculative vocabulary: two matrices that score every token cheaply (V1, V2 of the mission)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Scores s = vocabulary (down h) [+ prior], h the head's input; the ``num_candidates`` best get exact logits.

    ``down`` float32 [r, d]. ``vocabulary`` float32 [V, r], or [G, r] where ``groups`` int32 [G, size] (target ids, -1
    where a group is not full) ranks groups of tokens instead of tokens. ``prior`` float32 [V] or [G] is added to the
    scores (frequency prior), None for none. ``is_exact``: False uses the scores themselves as q, without exact logits
    (ungrouped only).
    """

    down: FloatArray
    vocabulary: FloatArray
    num_candidates: int
    groups: npt.NDArray[np.int32] | None = None
    prior: FloatArray | None = None
    is_exact: bool = True

    @property
    def rank(self) -> int:
        """r."""
        return int(self.down.shape[0])
