"""What enters every joined linear of a checkpoint, measured on text, one layer in memory at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..checkpoint.source import Checkpoint
from ..progress import Progress
from .forward import Forward, multiply

FloatArray = npt.NDArray[np.float32]
TokenIds = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRange:
    """Inputs of one linear: the largest magnitude of each channel [d_in]."""

    channel_max: FloatArray

    @property
    def largest(self) -> float:
        """The largest magnitude of all."""
        return float(self.channel_max.max())


def measure_ranges(checkpoint: Checkpoint, sequences: Sequence[TokenIds], progress: Progress) -> dict[str, InputRange]:
    """Ranges by joined name ("layers.0.qkv", ..., "head")."""
    ranges: dict[str, InputRange] = {}

    def look(name: str, x: FloatArray, weight: FloatArray, bias: FloatArray | None) -> FloatArray:
        ranges[name] = InputRange(channel_max=np.abs(x).max(axis=0))
        return multiply(name, x, weight, bias)

    spec = checkpoint.spec
    forward = Forward(spec, checkpoint.weights.read, [len(s) for s in sequences])
    with progress.stage("calibrate", total=spec.num_layers, unit="layers") as stage:
        x = forward.embed(np.concatenate(sequences))
        for index in range(spec.num_layers):
            x = forward.layer(index, x, look)
            stage.advance()
        ranges["head"] = InputRange(channel_max=np.abs(forward.final_norm(x)).max(axis=0))
        stage.note(f"{len(x):,} tokens")
    return ranges
