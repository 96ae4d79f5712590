"""The external data file of a graph: tensors appended one at a time, aligned so that a runtime can map them."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import onnx

from ..errors import BuildError

PAGE_BYTES = 4096
"""Alignment of large tensors: a runtime maps them page by page."""
LINE_BYTES = 64
"""Alignment of small tensors: a cache line and the widest vector register."""
CHUNK_BYTES = 16 << 20

ONNX_TYPES: dict[str, int] = {
    "float32": onnx.TensorProto.FLOAT,
    "float16": onnx.TensorProto.FLOAT16,
    "int8": onnx.TensorProto.INT8,
    "uint8": onnx.TensorProto.UINT8,
    "int32": onnx.TensorProto.INT32,
    "int64": onnx.TensorProto.INT64,
    "bool": onnx.TensorProto.BOOL,
}


class WeightsFile:
    """Appends tensors to ``path``; converts and makes contiguous a few megabytes at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_bytes = 0
        self._file = path.open("wb")

    def append(self, name: str, array: npt.NDArray[Any], dtype: npt.DTypeLike) -> onnx.TensorProto:
        """Store ``array`` (any strides, also a transposed view) as ``dtype``; returns the initializer naming it.

        Raises ``BuildError`` naming the tensor where a value is beyond FP16's range.
        """
        kind = np.dtype(dtype)
        length = array.size * kind.itemsize
        self._pad(PAGE_BYTES if length >= PAGE_BYTES else LINE_BYTES)
        offset = self.num_bytes
        for block in _blocks(array):
            self._file.write(_convert(name, block, kind).data)
        self.num_bytes += length
        tensor = onnx.TensorProto(name=name, dims=array.shape, data_type=ONNX_TYPES[kind.name])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", self.path.name), ("offset", str(offset)), ("length", str(length))):
            tensor.external_data.add(key=key, value=value)
        return tensor

    def _pad(self, alignment: int) -> None:
        missing = -self.num_bytes % alignment
        self._file.write(bytes(missing))
        self.num_bytes += missing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _convert(name: str, block: npt.NDArray[Any], kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """``block`` as ``kind``; raises ``BuildError`` where FP16 would make an infinity of a value."""
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(block, dtype=kind)
    if kind == np.float16 and not np.isfinite(converted).all():
        raise BuildError(
            f"FP16 overflow, tensor {name}",
            expected="values up to 65,504",
            found=f"{float(np.abs(block).max()):,.0f}",
            where="weights",
            action="Build this model with --precision fp32 or int8",
        )
    return converted


def _blocks(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Pieces of ``array`` along its first axis, each about ``CHUNK_BYTES`` as float32."""
    if array.ndim == 0 or array.size * 4 <= CHUNK_BYTES:
        yield array
        return
    rows = max(1, CHUNK_BYTES // (4 * (array.size // array.shape[0])))
    for start in range(0, array.shape[0], rows):
        yield array[start : start + rows]
