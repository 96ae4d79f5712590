"""Linear layers as ``draftsmith.QuantizedLinear``: 8-bit weights in panels, activations rounded to 16 bits a row.

The embedding and the head are row-major instead (``draftsmith.VocabularyLinear``): rows are looked up in them.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from draftsmith.plugins.packing import (
    PackedLinear,
    PackedVocabulary,
    pack_codes,
    pack_linear,
    pack_vocabulary,
    pack_vocabulary_codes,
)

from .graph_builder import GraphBuilder

Packed = TypeVar("Packed", PackedLinear, PackedVocabulary)
DRAFTSMITH = "draftsmith"
FloatArray = npt.NDArray[np.float32]
Rounded = tuple[npt.NDArray[np.int8], FloatArray]
"""Codes int8 [K, N] and scales [N] that a layer's weights were rounded to."""


class NativeLinear:
    """See ``LinearPlan``; for the dialect "native" alone.

    ``rounded``: None rounds each weight to the nearest.
    """

    def __init__(self, rounded: Rounded | None = None) -> None:
        self._rounded = rounded

    def emit(self, builder: GraphBuilder, x: str, weight: FloatArray, bias: FloatArray | None, name: str) -> str:
        """See ``LinearPlan``."""
        store_packed(builder, _pack(weight, self._rounded, pack_linear, pack_codes), name)
        return multiply_packed(builder, x, name, weight.shape[1], bias)


class NativeHead:
    """See ``LinearPlan``: a head of its own, row-major. ``rounded`` as for ``NativeLinear``."""

    def __init__(self, rounded: Rounded | None = None) -> None:
        self._rounded = rounded

    def emit(self, builder: GraphBuilder, x: str, weight: FloatArray, bias: FloatArray | None, name: str) -> str:
        """See ``LinearPlan``."""
        store_vocabulary(builder, _pack(weight, self._rounded, pack_vocabulary, pack_vocabulary_codes), name)
        return multiply_vocabulary(builder, x, name, weight.shape[1], bias)


class NativeTiedHead:
    """See ``LinearPlan``: the head that multiplies with the rows that ``NativeEmbedding`` stored."""

    def emit(self, builder: GraphBuilder, x: str, weight: FloatArray, bias: FloatArray | None, name: str) -> str:
        """See ``LinearPlan``."""
        del name
        return multiply_vocabulary(builder, x, "embedding", weight.shape[1], bias)


class NativeEmbedding:
    """See ``EmbeddingPlan``: rows in 8 bits; a tied head reads the same memory."""

    def emit(self, builder: GraphBuilder, token_ids: str, weight: FloatArray, name: str) -> str:
        """See ``EmbeddingPlan``."""
        store_vocabulary(builder, pack_vocabulary(weight), name)
        return look_up_rows(builder, token_ids, name, *weight.shape)


def _pack(
    weight: FloatArray,
    rounded: Rounded | None,
    pack: Callable[[FloatArray], Packed],
    pack_rounded: Callable[[npt.NDArray[np.int8], FloatArray], Packed],
) -> Packed:
    """``weight`` [K, N] as an operator reads it: each weight to the nearest, or as it was ``rounded`` before."""
    return pack(weight.T) if rounded is None else pack_rounded(rounded[0].T, rounded[1])


def store_packed(builder: GraphBuilder, packed: PackedLinear, name: str) -> None:
    """Store the tensors that ``QuantizedLinear`` reads."""
    builder.weight(f"{name}.weight", packed.weights)
    builder.weight(f"{name}.scales", packed.scales)
    builder.weight(f"{name}.sums", packed.sums)


def multiply_packed(builder: GraphBuilder, x: str, stored: str, num_outputs: int, bias: FloatArray | None) -> str:
    """``x`` [..., K] times the weights stored under ``stored``."""
    inputs = [x, f"{stored}.weight", f"{stored}.scales", f"{stored}.sums"]
    if bias is not None:
        inputs.append(builder.weight(f"{stored}.bias", bias, "float32"))
    return builder.op("QuantizedLinear", *inputs, domain=DRAFTSMITH, num_outputs=num_outputs)


def store_vocabulary(builder: GraphBuilder, packed: PackedVocabulary, name: str) -> None:
    """Store the tensors that ``VocabularyLinear`` and ``PackedRows`` read."""
    builder.weight(f"{name}.weight", packed.weights)
    builder.weight(f"{name}.scales", packed.scales)


def multiply_vocabulary(builder: GraphBuilder, x: str, stored: str, num_outputs: int, bias: FloatArray | None) -> str:
    """``x`` [..., K] times the rows stored under ``stored``."""
    inputs = [x, f"{stored}.weight", f"{stored}.scales"]
    if bias is not None:
        inputs.append(builder.weight(f"{stored}.bias", bias, "float32"))
    return builder.op("VocabularyLinear", *inputs, domain=DRAFTSMITH, num_outputs=num_outputs)


def look_up_rows(builder: GraphBuilder, ids: str, stored: str, num_rows: int, width: int) -> str:
    """Rows ``ids`` (int32 [...]) of those stored under ``stored``, as float32 [..., ``width``]."""
    inputs = [ids, f"{stored}.weight", f"{stored}.scales"]
    return builder.op("PackedRows", *inputs, domain=DRAFTSMITH, num_outputs=num_rows, depth=width)
