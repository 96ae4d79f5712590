"""Groups of similar tokens that are ranked as wholes (V11's hierarchy): balanced clusters, and scores for them.

A group's score is the linear function of the hidden state that is nearest, over a text, to the log-sum-exp of its
members' logits, which follows its best member; its rank is then cut in closed form as for tokens.
"""

import numpy as np
import numpy.typing as npt

from ..spec.ranking import Ranking
from .closed_form import fit_ranking, second_moment

FloatArray = npt.NDArray[np.float32]
Groups = npt.NDArray[np.int32]
GROUP_SIZE = 16
_RIDGE = 1e-2
_BLOCK_BYTES = 64_000_000


def group_tokens(vectors: FloatArray, size: int = GROUP_SIZE) -> Groups:
    """Token ids int32 [G, size] of balanced clusters of ``vectors`` [V, r] (rows of W_vocab); -1 fills the last group.

    Sets are cut across their widest direction, again and again, into parts of whole groups. Deterministic.
    """
    num_groups = -(-len(vectors) // size)
    groups = np.full((num_groups, size), -1, np.int32)
    pending = [(np.arange(len(vectors)), 0, num_groups)]
    while pending:
        ids, first, count = pending.pop()
        if count == 1:
            groups[first, : len(ids)] = np.sort(ids)
            continue
        centred = vectors[ids] - vectors[ids].mean(axis=0)
        along = centred @ np.linalg.eigh(centred.T @ centred)[1][:, -1]
        order = ids[np.argsort(along, kind="stable")]
        half = count // 2
        pending += [(order[: half * size], first, half), (order[half * size :], first + half, count - half)]
    return groups


def fit_group_ranking(
    head: FloatArray, hidden: FloatArray, groups: Groups, *, rank: int, num_candidates: int
) -> Ranking:
    """Scores for ``groups`` [G, size] from ``hidden`` [M, d] of a text; ``head`` [V, d]."""
    mean = hidden.mean(axis=0, dtype=np.float64)
    centred = (hidden - mean).astype(np.float32)
    cross, level = _regress(head, hidden, centred, groups)  # [d, G], [G]
    moment = second_moment(centred)
    size = len(moment)
    # No more than the text can tell: fewer positions than dimensions leave a null space, which the ridge keeps at zero.
    strength = _RIDGE * float(np.trace(moment)) / size + 1e-12
    slopes = np.linalg.solve(moment + strength * np.eye(size), cross)
    down, vocabulary = fit_ranking(slopes.T, moment + strength * np.eye(size), min(rank, size))
    prior = level - vocabulary @ (down @ mean)
    return Ranking(
        down=down,
        vocabulary=vocabulary,
        num_candidates=num_candidates,
        groups=groups,
        prior=prior.astype(np.float32),
    )


def _regress(
    head: FloatArray, hidden: FloatArray, centred: FloatArray, groups: Groups
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Mean product of centred states and the groups' log-sum-exps [d, G], and the mean of the latter [G]."""
    order, full = np.maximum(groups.ravel(), 0), groups.ravel() >= 0
    cross, level = np.zeros((head.shape[1], len(groups))), np.zeros(len(groups))
    rows = max(1, _BLOCK_BYTES // (4 * len(order)))
    for start in range(0, len(hidden), rows):
        logits = (hidden[start : start + rows] @ head.T)[:, order]
        logits[:, ~full] = -np.inf
        logits = logits.reshape(-1, *groups.shape)
        top = logits.max(axis=2)
        values = top + np.log(np.exp(logits - top[:, :, None]).sum(axis=2))  # [m, G]
        cross += centred[start : start + rows].T @ values
        level += values.sum(axis=0, dtype=np.float64)
    return cross / len(hidden), level / len(hidden)
