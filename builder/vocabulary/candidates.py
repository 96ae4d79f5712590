"""Who proposes candidates: a ranking of tokens or groups, or a static subset. Best first: one order serves every k."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..spec.ranking import Ranking

FloatArray = npt.NDArray[np.float32]
TokenIds = npt.NDArray[np.int64]


class Proposer(Protocol):
    """Anything that names tokens for a hidden state without looking at their logits."""

    def propose(self, hidden: FloatArray, num_candidates: int) -> TokenIds:
        """``hidden`` [m, d] -> ids [m, k], best first, distinct in a row; -1 where a group is not full.

        The first j are what the proposer gives for j candidates (whole groups only, where it ranks groups).
        """


@dataclass(frozen=True, slots=True)
class RankedTokens:
    """A ``Ranking``, with groups or without."""

    ranking: Ranking

    def propose(self, hidden: FloatArray, num_candidates: int) -> TokenIds:
        """The tokens, or members of the groups, with the best scores."""
        scores = score(self.ranking, hidden)
        groups = self.ranking.groups
        if groups is None:
            return best_first(scores, min(num_candidates, scores.shape[1]))
        chosen = best_first(scores, min(-(-num_candidates // groups.shape[1]), len(groups)))
        return groups[chosen].reshape(len(hidden), -1).astype(np.int64)


@dataclass(frozen=True, slots=True)
class StaticTokens:
    """The same ids [n] for every state, most useful first."""

    ids: Sequence[int] | npt.NDArray[np.integer[Any]]

    def propose(self, hidden: FloatArray, num_candidates: int) -> TokenIds:
        """The first of the ids."""
        chosen = np.asarray(self.ids, np.int64)[:num_candidates]
        return np.broadcast_to(chosen, (len(hidden), len(chosen)))


def score(ranking: Ranking, hidden: FloatArray) -> FloatArray:
    """``hidden`` [m, d] -> scores [m, V or G]."""
    scores = (hidden @ ranking.down.T) @ ranking.vocabulary.T
    return scores if ranking.prior is None else scores + ranking.prior


def best_first(scores: FloatArray, count: int) -> TokenIds:
    """Columns of the ``count`` largest of ``scores`` [m, n] in each row, largest first; [m, count]."""
    if count < scores.shape[1]:
        chosen = np.argpartition(-scores, count - 1, axis=1)[:, :count]
    else:
        chosen = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    chosen = np.sort(chosen, axis=1)  # the lowest id first among equals
    order = np.argsort(-np.take_along_axis(scores, chosen, axis=1), axis=1, kind="stable")
    return np.take_along_axis(chosen, order, axis=1)
