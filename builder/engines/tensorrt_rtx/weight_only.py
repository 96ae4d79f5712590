"""INT8 weights with float activations: one scale an output channel, rounded to nearest, undone next to the matmul."""

import numpy as np
import numpy.typing as npt

from ...graph.graph_builder import GraphBuilder
from ...graph.linear import add_bias

FloatArray = npt.NDArray[np.float32]
HIGHEST = 127
CHUNK_COLUMNS = 4096
"""Output channels quantised at a time, so that a large head needs no second float copy of itself."""


class WeightOnlyLinear:
    """A ``LinearPlan`` that stores int8 weights and their scales; the runtime multiplies in the compute type.

    TensorRT-RTX fuses the ``DequantizeLinear`` of a constant into the matmul, so weights stay int8 in the engine.
    """

    def emit(self, builder: GraphBuilder, x: str, weight: FloatArray, bias: FloatArray | None, name: str) -> str:
        """See ``LinearPlan``."""
        codes, scales = quantize_columns(weight)
        stored = builder.weight(f"{name}.weight", codes)
        scale = builder.weight(f"{name}.scale", scales, builder.compute)
        restored = builder.op("DequantizeLinear", stored, scale, axis=1)
        return add_bias(builder, builder.op("MatMul", x, restored), bias, name)


def quantize_columns(weight: FloatArray) -> tuple[npt.NDArray[np.int8], FloatArray]:
    """Codes [d_in, d_out] and scales [d_out] with weight about codes * scales; a column of zeros has scale 1."""
    codes = np.empty(weight.shape, np.int8)
    scales = np.empty(weight.shape[1], np.float32)
    for start in range(0, weight.shape[1], CHUNK_COLUMNS):
        part = slice(start, start + CHUNK_COLUMNS)
        block = np.asarray(weight[:, part], np.float32)
        largest = np.abs(block).max(axis=0)
        scales[part] = np.where(largest > 0, largest / HIGHEST, 1)
        codes[:, part] = np.rint(block / scales[part])
    return codes, scales
