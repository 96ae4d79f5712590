"""The INT8 plan of a checkpoint: measures its activations on text and chooses a scheme for every joined linear."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..checkpoint.source import Checkpoint
from ..progress import Progress
from .calibration import InputRange, measure_ranges
from .scheme import PLANES, Int8Embedding, Int8Linear
from .text import encode_documents, read_shipped, split_text

MAX_CALIBRATION_TOKENS = 2048
HEADROOM = 2.0
"""hi_lo planes reach this far beyond the largest value that calibration saw: it costs one of 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Plan:
    """Plans by joined name, the embedding's plan, and what the manifest says of them."""

    linears: Mapping[str, Int8Linear]
    embedding: Int8Embedding
    table: Mapping[str, Mapping[str, Any]]

    def facts(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"layers": {name: dict(row) for name, row in self.table.items()}}


def plan_int8(
    checkpoint: Checkpoint,
    *,
    error_budget: float | None,  # noqa: ARG001
    calibration_text: str | None,
    num_threads: int,  # noqa: ARG001
    progress: Progress,
) -> Int8Plan:
    """Calibrate ``checkpoint`` and choose. ``error_budget``: KL per token that rounding may cost, None: the default."""
    documents = read_shipped("calibration") if calibration_text is None else split_text(calibration_text)
    sequences = encode_documents(documents, checkpoint.tokenizer, MAX_CALIBRATION_TOKENS)
    ranges = measure_ranges(checkpoint, sequences, progress)
    tied = checkpoint.spec.tied_head
    linears = {name: _hi_lo(seen, shares_embedding=tied and name == "head") for name, seen in ranges.items()}
    table = {name: {"scheme": plan.scheme, "step": plan.step} for name, plan in linears.items()}
    return Int8Plan(linears=linears, embedding=Int8Embedding(), table=table)


def _hi_lo(seen: InputRange, *, shares_embedding: bool) -> Int8Linear:
    step = max(HEADROOM * seen.largest, 1e-6) / (PLANES * 127)
    return Int8Linear(scheme="hi_lo", step=step, shares_embedding=shares_embedding)
