"""How linear layers and the embedding are written: the protocols that quantisation fills in, and the float forms."""

from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from .graph_builder import GraphBuilder

Storage = Literal["fp32", "fp16"]
FloatArray = npt.NDArray[np.float32]
DIVISORS = "divisors"
"""``<name>.divisors`` [d_in]: what a linear's inputs are divided by before they meet its stored weights."""
STORAGE_DTYPES: dict[Storage, str] = {"fp32": "float32", "fp16": "float16"}


class LinearPlan(Protocol):
    """Writes one (joined) linear layer into a graph."""

    def emit(self, builder: GraphBuilder, x: str, weight: FloatArray, bias: FloatArray | None, name: str) -> str:
        """``x`` [..., d_in] times ``weight`` [d_in, d_out] (may be a transposed view) plus ``bias`` [d_out].

        ``x`` and the result have the type ``builder.compute``. ``name`` ("layers.3.qkv", ..., "head") is unique; names
        of stored tensors start with it. The same tensors may be stored once: look with ``builder.has_weight``.
        """


class EmbeddingPlan(Protocol):
    """Writes the token embedding into a graph."""

    def emit(self, builder: GraphBuilder, token_ids: str, weight: FloatArray, name: str) -> str:
        """Rows ``token_ids`` (int32 [B, T]) of ``weight`` [V, d] as float32 [B, T, d]; ``name`` is "embedding"."""


class FloatLinear:
    """Weights kept as floats and multiplied in the graph's compute type."""

    def __init__(self, storage: Storage) -> None:
        self._dtype = STORAGE_DTYPES[storage]

    def emit(self, builder: GraphBuilder, x: str, weight: FloatArray, bias: FloatArray | None, name: str) -> str:
        """See ``LinearPlan``."""
        stored = builder.weight(f"{name}.weight", weight, self._dtype)
        y = builder.op("MatMul", x, _as(builder, stored, self._dtype))
        return add_bias(builder, y, bias, name)


class FloatEmbedding:
    """Embedding rows kept as floats; the rows that are looked up are converted, not the table."""

    def __init__(self, storage: Storage) -> None:
        self._dtype = STORAGE_DTYPES[storage]

    def emit(self, builder: GraphBuilder, token_ids: str, weight: FloatArray, name: str) -> str:
        """See ``EmbeddingPlan``."""
        rows = builder.op("Gather", builder.weight(f"{name}.weight", weight, self._dtype), token_ids, axis=0)
        return rows if self._dtype == "float32" else builder.cast(rows, "float32")


def emit_tied_head(builder: GraphBuilder, x: str, storage: Storage, width: int) -> str:
    """``x`` [B, N, d] times the rows [V, d] that ``FloatEmbedding`` stored; ``width`` is d. Nothing is stored twice."""
    return multiply_rows(builder, x, _as(builder, "embedding.weight", STORAGE_DTYPES[storage]), width)


def multiply_rows(builder: GraphBuilder, x: str, rows: str, width: int) -> str:
    """``x`` [B, N, d] times ``rows`` [V, d], of one type: [B, N, V]; ``width`` is d.

    ``Gemm`` takes rows as they lie; a MatMul of the transpose would be folded into a second copy at load.
    """
    flat = builder.op("Reshape", x, builder.constant([-1, width], "int64"))  # [B N, d]
    y = builder.op("Gemm", flat, rows, transB=1)  # [B N, V]
    lead = builder.op("Shape", x, start=0, end=2)
    shape = builder.op("Concat", lead, builder.constant([-1], "int64"), axis=0)
    return builder.op("Reshape", y, shape)


def add_bias(builder: GraphBuilder, y: str, bias: npt.NDArray[Any] | None, name: str) -> str:
    """``y`` plus ``bias`` in the compute type, or ``y`` where there is none."""
    if bias is None:
        return y
    return builder.op("Add", y, builder.weight(f"{name}.bias", bias, builder.compute))


def _as(builder: GraphBuilder, weight: str, dtype: str) -> str:
    return weight if dtype == builder.compute else builder.cast(weight, builder.compute)
