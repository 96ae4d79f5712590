"""Tables of a draft that are the target's again: borrowed instead of stored twice, and told where they are neither.

Exporters put a copy of the target's embedding into a draft's file, or, where one forgot to, random numbers (TorchSpec
issue 38); vLLM compares them for the same reason.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..checkpoint.source import Checkpoint
from ..draft.checkpoint import DraftCheckpoint

FloatArray = npt.NDArray[np.float32]
SAME = 1e-4
"""Squared distance over squared size below which two tables differ by rounding alone (bfloat16: 1e-6, 8 bits: 5e-5)."""
UNLIKE = 0.9
"""Above it nothing of the target's table is left."""
_ROWS = 8192


def share_equal_tables(draft: DraftCheckpoint, target: Checkpoint) -> DraftCheckpoint:
    """``draft`` without an embedding or a full head of its own where it is the target's; ``choices`` say so."""
    spec, own, others = draft.spec, target.spec, target.weights.read
    choices = list(draft.choices)
    head = "model.embed_tokens.weight" if own.tied_head else "lm_head.weight"
    if spec.hidden_size != own.hidden_size or spec.vocab_size != own.vocab_size:
        return draft
    if spec.own_embedding:
        distance = relative_distance(draft.weights.read("embed_tokens.weight"), others("model.embed_tokens.weight"))
        spec = replace(spec, own_embedding=not _is_same("embed_tokens", distance, choices))
    if spec.own_head and draft.target_ids is None:
        distance = relative_distance(draft.weights.read("lm_head.weight"), others(head))
        spec = replace(spec, own_head=not _is_same("lm_head", distance, choices))
    return replace(draft, spec=spec, choices=choices)


def relative_distance(found: FloatArray, expected: FloatArray) -> float:
    """Squared distance of two tables over the squared size of ``expected``."""
    difference = size = 0.0
    for start in range(0, len(expected), _ROWS):
        rows = slice(start, start + _ROWS)
        block = expected[rows].astype(np.float64)
        difference += float(np.sum((found[rows] - block) ** 2))
        size += float(np.sum(block**2))
    return difference / size if size else float("inf")


def _is_same(name: str, distance: float, choices: list[str]) -> bool:
    if distance <= SAME:
        choices.append(f"{name}: the file's is the target's again, which is used.")
    elif distance >= UNLIKE:
        choices.append(
            f"{name}: unlike the target's (relative squared distance {distance:.2f}): one of its own, or what an "
            "exporter left at random."
        )
    return distance <= SAME
