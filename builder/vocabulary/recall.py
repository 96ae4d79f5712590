"""How good candidates are: how often the full head's best token is among them, and what probability they cover."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .candidates import Proposer
from .hidden_states import HeadStates

FloatArray = npt.NDArray[np.float32]
BLOCK_BYTES = 64_000_000
"""Logits in memory at a time."""
ALL_TASKS = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """Of ``num_positions`` positions of a ``task``: share whose top-1 token is among the ``num_candidates``, and mass.

    ``mass``: mean probability of the candidates at temperature 1.
    """

    task: str
    num_candidates: int
    num_positions: int
    recall: float
    mass: float

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "task": self.task,
            "num_candidates": self.num_candidates,
            "positions": self.num_positions,
            "recall": round(self.recall, 4),
            "mass": round(self.mass, 4),
        }


def measure_recall(
    states: HeadStates, head: FloatArray, proposers: Mapping[str, Proposer], num_candidates: Sequence[int]
) -> dict[str, list[Recall]]:
    """Of each proposer: a ``Recall`` a task and number of candidates, the mean over all positions last.

    ``head`` [V, d]: the full head that ``states`` are meant for. Logits of a block of positions exist at a time.
    """
    ks = np.minimum(np.asarray(num_candidates), len(head))
    hits = {name: np.zeros((len(states), len(ks))) for name in proposers}
    masses = {name: np.zeros((len(states), len(ks))) for name in proposers}
    for rows, probabilities in probability_blocks(states.hidden, head):
        best = probabilities.argmax(axis=1)[:, None]
        for name, proposer in proposers.items():
            ids = proposer.propose(states.hidden[rows], int(ks.max()))  # [m, k]
            covered = np.where(ids >= 0, np.take_along_axis(probabilities, np.maximum(ids, 0), axis=1), 0)
            ends = np.minimum(ks, ids.shape[1]) - 1
            masses[name][rows] = np.cumsum(covered, axis=1, dtype=np.float64)[:, ends]
            hits[name][rows] = np.cumsum(ids == best, axis=1)[:, ends]
    return {
        name: [
            _mean(task, int(k), hits[name][chosen, column], masses[name][chosen, column])
            for task, chosen in _task_masks(states)
            for column, k in enumerate(ks)
        ]
        for name in proposers
    }


def probability_blocks(hidden: FloatArray, head: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
    """Rows of ``hidden`` [M, d] and their softmax [m, V] over the full head, a block at a time; the caller owns it."""
    size = max(1, BLOCK_BYTES // (4 * len(head)))
    for start in range(0, len(hidden), size):
        rows = slice(start, min(start + size, len(hidden)))
        logits = hidden[rows] @ head.T
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        yield rows, logits


def overall(recalls: Sequence[Recall]) -> list[Recall]:
    """Those over all positions."""
    return [recall for recall in recalls if recall.task == ALL_TASKS]


def _task_masks(states: HeadStates) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    if len(states.tasks) > 1:
        yield from ((task, states.task_index == index) for index, task in enumerate(states.tasks))
    yield ALL_TASKS, np.ones(len(states), bool)


def _mean(task: str, k: int, hits: npt.NDArray[np.float64], masses: npt.NDArray[np.float64]) -> Recall:
    count = len(hits)
    return Recall(
        task=task,
        num_candidates=k,
        num_positions=count,
        recall=float(hits.sum() / max(1, count)),
        mass=float(masses.sum() / max(1, count)),
    )
