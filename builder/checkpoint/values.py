"""Stored bytes -> float32, and the check that they are numbers."""

import math

import numpy as np
import numpy.typing as npt
from draftsmith.builder.errors import CheckpointError

from .mapped_file import MappedFile

Weights = npt.NDArray[np.float32]

CHUNK_VALUES = 1 << 22  # converted at once: bounds the temporary arrays
# Element type of a file -> bytes per element, for the types that hold weights.
ELEMENT_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


def to_float32(raw: npt.NDArray[np.uint8], dtype: str, shape: tuple[int, ...]) -> Weights:
    """Little-endian elements of ``dtype`` as a new float32 array of ``shape``."""
    if dtype == "BF16":
        wide = raw.view("<u2").astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32).reshape(shape)
    stored = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype]
    return raw.view(stored).astype(np.float32).reshape(shape)


def read_float32(file: MappedFile, begin: int, dtype: str, shape: tuple[int, ...]) -> Weights:
    """Elements of a mapped file as a new float32 array; pages are given back piece by piece, not behind the last."""
    size, width = math.prod(shape), ELEMENT_BYTES[dtype]
    values = np.empty(size, np.float32)
    for start in range(0, size, CHUNK_VALUES):
        count = min(CHUNK_VALUES, size - start)
        raw = file.view(begin + start * width, count * width)
        values[start : start + count] = to_float32(raw, dtype, (count,))
        file.forget(begin + start * width, count * width)
    return values.reshape(shape)


def check_finite(values: Weights, name: str, where: str) -> Weights:
    """``values``, or ``CheckpointError`` where one is NaN or infinite."""
    with np.errstate(all="ignore"):
        total = float(np.sum(values, dtype=np.float64))  # NaN and infinity survive a sum, without a second array
    if not math.isfinite(total):
        bad = int(values.size - np.count_nonzero(np.isfinite(values)))
        raise CheckpointError(
            f"tensor `{name}`",
            expected="finite numbers",
            found=f"{bad} of {values.size} NaN or infinite",
            where=where,
            action="The file is corrupt or overflowed when it was written.",
        )
    return values
