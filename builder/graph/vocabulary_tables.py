"""Matrices with a row a token (embedding, head), in the form that a draft's graph multiplies with and looks up in.

A table is stored by the draft itself or borrowed from the target's weights file, where the target's graph put it.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from draftsmith.plugins.packing import pack_vocabulary

from .borrowed import StoredTensors
from .graph_builder import GraphBuilder
from .linear import STORAGE_DTYPES, Storage
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
    """Stored as ``dtype``, [V, d], or [d, V] where ``is_transposed``; multiplied in float32."""

    name: str
    dtype: str
    num_rows: int
    width: int
    is_transposed: bool = False

    def look_up(self, graph: GraphBuilder, ids: str) -> str:
        """See ``VocabularyTable``; ``ids`` of any integer type and shape."""
        axis = 1 if self.is_transposed else 0
        rows = self._as_float(graph, graph.op("Gather", self.name, ids, axis=axis))
        return graph.op("Transpose", rows, perm=[1, 2, 0]) if self.is_transposed else rows

    def multiply(self, graph: GraphBuilder, x: str) -> str:
        """See ``VocabularyTable``."""
        stored = self._as_float(graph, self.name)
        if self.is_transposed:
            return graph.op("MatMul", x, stored)
        # Gemm takes rows as they lie; a MatMul of the transpose would be folded into a second copy at load.
        flat = graph.op("Reshape", x, graph.constant([-1, self.width], "int64"))  # [B N, d]
        y = graph.op("Gemm", flat, stored, transB=1)  # [B N, V]
        lead = graph.op("Shape", x, start=0, end=2)
        return graph.op("Reshape", y, graph.op("Concat", lead, graph.constant([-1], "int64"), axis=0))

    def multiply_rows(self, graph: GraphBuilder, x: str, ids: str) -> str:
        """``x`` float32 [B, N, d] times its own rows ``ids`` int32 [B, N, k]: float32 [B, N, k]."""
        shape = graph.op("Shape", ids)
        flat = graph.op("Reshape", ids, graph.constant([1, -1], "int64"))  # [1, B N k]
        rows = self.look_up(graph, flat)  # [1, B N k, d]
        size = graph.constant([self.width], "int64")
        rows = graph.op("Reshape", rows, graph.op("Concat", shape, size, axis=0))  # [B, N, k, d]
        column = graph.op("Unsqueeze", x, graph.constant([3], "int64"))  # [B, N, d, 1]
        return graph.op("Squeeze", graph.op("MatMul", rows, column), graph.constant([3], "int64"))

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
    """The target's "embedding" [V, d] or its own "head", which float graphs store as [d, V]; ``shape`` is (V, d)."""
    stored = graph.borrow(target.get(f"{name}.weight"))
    return FloatTable(
        name=stored,
        dtype=STORAGE_DTYPES[storage],
        num_rows=shape[0],
        width=shape[1],
        is_transposed=name == "head",
    )


def borrow_native_table(graph: GraphBuilder, target: StoredTensors, name: str, shape: tuple[int, int]) -> NativeTable:
    """The target's "embedding" or its own "head", 8-bit rows in both cases; ``shape`` is (V, d)."""
    for part in ("weight", "scales"):
        graph.borrow(target.get(f"{name}.{part}"))
    return NativeTable(name=name, num_rows=shape[0], width=shape[1])
