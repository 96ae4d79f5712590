"""Linear layers as ``draftsmith.QuantizedLinear``: 8-bit weights in panels, activations rounded to 16 bits a row."""

import numpy as np
import numpy.typing as npt
from draftsmith.plugins.packing import PackedLinear, pack_codes, pack_linear

from .graph_builder import GraphBuilder

DRAFTSMITH = "draftsmith"
FloatArray = npt.NDArray[np.float32]


class NativeLinear:
    """See ``LinearPlan``; for the dialect "native" alone.

    ``rounded``: codes int8 [K, N] and scales [N] that the weights were rounded to; None rounds each to the nearest.
    """

    def __init__(self, rounded: tuple[npt.NDArray[np.int8], FloatArray] | None = None) -> None:
        self._rounded = rounded

    def emit(self, builder: GraphBuilder, x: str, weight: FloatArray, bias: FloatArray | None, name: str) -> str:
        """See ``LinearPlan``."""
        if self._rounded is None:
            packed = pack_linear(weight.T)
        else:
            codes, scales = self._rounded
            packed = pack_codes(codes.T, scales)
        store_packed(builder, packed, name)
        return multiply_packed(builder, x, name, weight.shape[1], bias)


class NativeTiedHead:
    """See ``LinearPlan``: the head that multiplies with the rows that ``NativeEmbedding`` stored."""

    def emit(self, builder: GraphBuilder, x: str, weight: FloatArray, bias: FloatArray | None, name: str) -> str:
        """See ``LinearPlan``."""
        del name
        return multiply_packed(builder, x, "embedding", weight.shape[1], bias)


class NativeEmbedding:
    """See ``EmbeddingPlan``: rows in 8 bits, stored as a linear layer, so that a tied head reads the same memory."""

    def emit(self, builder: GraphBuilder, token_ids: str, weight: FloatArray, name: str) -> str:
        """See ``EmbeddingPlan``."""
        store_packed(builder, pack_linear(weight), name)
        rows, width = weight.shape
        inputs = [token_ids, f"{name}.weight", f"{name}.scales"]
        return builder.op("PackedRows", *inputs, domain=DRAFTSMITH, num_outputs=rows, depth=width)


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
