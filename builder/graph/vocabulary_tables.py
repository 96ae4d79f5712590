"""Matrices with a row a token (embedding, head), in the form that a draft's graph multiplies with and looks up in.

A table is stored by the draft itself or borrowed from the target's weights file, where the target's graph put it: as
floats, as the codes of ONNX Runtime's INT8 form, or as our own operators read it.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from draftsmith.plugins.packing import pack_vocabulary

from .borrowed import StoredTensors
from .graph_builder import GraphBuilder
from .linear import DIVISORS, STORAGE_DTYPES, Storage, multiply_rows
from .native_linear import look_up_rows, multiply_vocabulary, store_vocabulary

FloatArray = npt.NDArray[np.float32]


class VocabularyTable(Protocol):
    """V rows of d numbers."""

    def look_up(self, graph: GraphBuilder, ids: str) -> str:
        """Rows ``ids`` (int32 [B, T]) as float32 [B, T, d]."""

    def multiply(self, graph: GraphBuilder, x: str) -> str:
        """``x`` float32 [B, N, d] times all rows: float32 [B, N, V]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatTable:
    """Stored as ``dtype``, [V, d], or [d, V] where ``is_transposed``; multiplied in float32.

    ``scales``: the tensor [V] that multiplies each row, "" where ``name`` holds the values themselves. ``divisors``:
    the tensor [d] that rows were multiplied with, so that what meets them is divided by it; "" for none.
    """

    name: str
    dtype: str
    num_rows: int
    width: int
    is_transposed: bool = False
    scales: str = ""
    divisors: str = ""

    def look_up(self, graph: GraphBuilder, ids: str) -> str:
        """See ``VocabularyTable``; ``ids`` of any integer type, [B, T]."""
        rows = self._gather(graph, ids)
        if self.scales:
            scales = graph.op("Gather", self.scales, ids, axis=0)
            rows = graph.op("Mul", rows, graph.op("Unsqueeze", scales, graph.constant([-1], "int64")))
        return graph.op("Div", rows, self.divisors) if self.divisors else rows

    def multiply(self, graph: GraphBuilder, x: str) -> str:
        """See ``VocabularyTable``."""
        stored, x = self._as_float(graph, self.name), self._divide(graph, x)
        y = graph.op("MatMul", x, stored) if self.is_transposed else multiply_rows(graph, x, stored, self.width)
        return graph.op("Mul", y, self.scales) if self.scales else y

    def multiply_rows(self, graph: GraphBuilder, x: str, ids: str) -> str:
        """``x`` float32 [B, N, d] times its own rows ``ids`` int32 [B, N, k]: float32 [B, N, k]."""
        shape = graph.op("Shape", ids)
        flat = graph.op("Reshape", ids, graph.constant([1, -1], "int64"))  # [1, B N k]
        rows = self._gather(graph, flat)  # [1, B N k, d]
        size = graph.constant([self.width], "int64")
        rows = graph.op("Reshape", rows, graph.op("Concat", shape, size, axis=0))  # [B, N, k, d]
        column = graph.op("Unsqueeze", self._divide(graph, x), graph.constant([3], "int64"))  # [B, N, d, 1]
        y = graph.op("Squeeze", graph.op("MatMul", rows, column), graph.constant([3], "int64"))
        return graph.op("Mul", y, graph.op("Gather", self.scales, ids, axis=0)) if self.scales else y

    def _gather(self, graph: GraphBuilder, ids: str) -> str:
        """Rows as they are stored, in float32 [B, T, d]."""
        if not self.is_transposed:
            return self._as_float(graph, graph.op("Gather", self.name, ids, axis=0))
        rows = self._as_float(graph, graph.op("Gather", self.name, ids, axis=1))
        return graph.op("Transpose", rows, perm=[1, 2, 0])

    def _divide(self, graph: GraphBuilder, x: str) -> str:
        return graph.op("Div", x, self.divisors) if self.divisors else x

    def _as_float(self, graph: GraphBuilder, value: str) -> str:
        return value if self.dtype == "float32" else graph.cast(value, "float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeTable:
    """8-bit rows with a scale each, for our own operators: ``name``.weight and ``name``.scales."""

    name: str
    num_rows: int
    width: int

    def look_up(self, graph: GraphBuilder, ids: str) -> str:
        """See ``VocabularyTable``."""
        return look_up_rows(graph, ids, self.name, self.num_rows, self.width)

    def multiply(self, graph: GraphBuilder, x: str) -> str:
        """See ``VocabularyTable``."""
        return multiply_vocabulary(graph, x, self.name, self.num_rows, None)


def store_float_table(graph: GraphBuilder, name: str, rows: FloatArray, storage: Storage) -> FloatTable:
    """Store ``rows`` [V, d] as floats."""
    dtype = STORAGE_DTYPES[storage]
    stored = graph.weight(f"{name}.weight", rows, dtype)
    return FloatTable(name=stored, dtype=dtype, num_rows=rows.shape[0], width=rows.shape[1])


def store_native_table(graph: GraphBuilder, name: str, rows: FloatArray) -> NativeTable:
    """Store ``rows`` [V, d] in 8 bits, each weight rounded to the nearest."""
    store_vocabulary(graph, pack_vocabulary(rows), name)
    return NativeTable(name=name, num_rows=rows.shape[0], width=rows.shape[1])


def borrow_float_table(
    graph: GraphBuilder, target: StoredTensors, name: str, storage: Storage, shape: tuple[int, int]
) -> FloatTable:
    """The target's "embedding" [V, d] or its own "head" [d, V]; ``shape`` is (V, d).

    Floats; of a target in ONNX Runtime's INT8 form its codes and scales, and what the head's inputs are divided by.
    """
    is_coded = f"{name}.codes" in target
    divisors = f"{name}.{DIVISORS}"
    return FloatTable(
        name=graph.borrow(target.get(f"{name}.codes" if is_coded else f"{name}.weight")),
        dtype="int8" if is_coded else STORAGE_DTYPES[storage],
        num_rows=shape[0],
        width=shape[1],
        is_transposed=name == "head",
        scales=graph.borrow(target.get(f"{name}.scales")) if is_coded else "",
        divisors=graph.borrow(target.get(divisors)) if divisors in target else "",
    )


def borrow_native_table(graph: GraphBuilder, target: StoredTensors, name: str, shape: tuple[int, int]) -> NativeTable:
    """The target's "embedding" or its own "head", 8-bit rows in both cases; ``shape`` is (V, d)."""
    for part in ("weight", "scales"):
        graph.borrow(target.get(f"{name}.{part}"))
    return NativeTable(name=name, num_rows=shape[0], width=shape[1])
