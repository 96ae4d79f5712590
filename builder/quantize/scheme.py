"""The INT8 forms of a linear layer for ONNX Runtime, all row-independent: fixed scales, integer products.

Activations are uint8 with zero point 128, weights int8: the product that ONNX Runtime has fast kernels for. Sums are
exact integers on every CPU as long as the session asks for exact products where the CPU saturates pair sums (see
``docs/decisions.md``, "Exact integer products").
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..graph.graph_builder import MICROSOFT, GraphBuilder
from ..graph.linear import add_bias
from .codes import Codes, column_scales, round_columns

FloatArray = npt.NDArray[np.float32]
Scheme = Literal["static", "hi_lo"]
ZERO_POINT = 128
PLANES = 256
"""The high plane counts in steps of 256 low steps: a power of two, so that joining the planes rounds once."""
EMBEDDING_CODES, EMBEDDING_SCALES = "embedding.codes", "embedding.scales"


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Linear:
    """A ``LinearPlan``. ``step``: what one unit of the (low) activation plane stands for.

    "static": one plane, 8 bits. "hi_lo": two planes, 16 bits: x is rounded to steps of 256 ``step``, the rest to
    ``step``; both planes go through one matmul as rows of their own and are added. Values beyond the range saturate.
    ``shares_embedding``: the weights are the embedding's codes, stored there.
    """

    scheme: Scheme
    step: float
    shares_embedding: bool = False

    def emit(self, builder: GraphBuilder, x: str, weight: FloatArray, bias: FloatArray | None, name: str) -> str:
        """See ``LinearPlan`` of the graph; ``x`` has three dimensions."""
        codes, scales = self._weights(builder, weight, name)
        step = builder.constant(self.step, "float32")
        if self.scheme == "static":
            return add_bias(builder, self._product(builder, self._round(builder, x, step), codes, scales), bias, name)
        coarse = builder.constant(np.float32(self.step) * PLANES, "float32")
        high = self._round(builder, x, coarse)
        back = builder.op("DequantizeLinear", high, coarse, builder.constant(ZERO_POINT, "uint8"))
        low = self._round(builder, builder.op("Sub", x, back), step)
        planes = builder.op("Concat", high, low, axis=1)  # [B, 2T, d_in]
        y = self._product(builder, planes, codes, scales)  # [B, 2T, d_out]
        y = builder.op("Reshape", y, builder.constant([0, 2, -1], "int64"))  # [B, 2, T d_out]
        y = builder.op("MatMul", builder.constant([[PLANES, 1]], "float32"), y)  # [B, 1, T d_out]
        y = builder.op("Reshape", y, builder.constant([0, -1, weight.shape[1]], "int64"))  # [B, T, d_out]
        return add_bias(builder, y, bias, name)

    def _weights(self, builder: GraphBuilder, weight: FloatArray, name: str) -> tuple[str, str]:
        """Names of codes [d_in, d_out] and scales [d_out]."""
        if self.shares_embedding:
            return builder.op("Transpose", EMBEDDING_CODES, perm=[1, 0]), EMBEDDING_SCALES
        scales = column_scales(weight)
        codes = round_columns(weight, scales)
        return builder.weight(f"{name}.codes", codes), builder.weight(f"{name}.scales", scales)

    def _round(self, builder: GraphBuilder, x: str, step: str) -> str:
        return builder.op("QuantizeLinear", x, step, builder.constant(ZERO_POINT, "uint8"))

    def _product(self, builder: GraphBuilder, x: str, codes: str, scales: str) -> str:
        step, zero = builder.constant(self.step, "float32"), builder.constant(ZERO_POINT, "uint8")
        return builder.op("MatMulIntegerToFloat", x, codes, step, scales, zero, domain=MICROSOFT)


@dataclass(frozen=True, slots=True)
class Int8Embedding:
    """An ``EmbeddingPlan``: int8 rows with one scale a row; a tied head multiplies the same codes."""

    def emit(self, builder: GraphBuilder, token_ids: str, weight: FloatArray, name: str) -> str:  # noqa: ARG002
        """See ``EmbeddingPlan`` of the graph."""
        scales = column_scales(weight.T)
        codes: Codes = round_columns(weight.T, scales).T  # [V, d], rows contiguous
        rows = builder.op("Gather", builder.weight(EMBEDDING_CODES, codes), token_ids, axis=0)  # [B, T, d]
        factors = builder.op("Gather", builder.weight(EMBEDDING_SCALES, scales), token_ids, axis=0)
        factors = builder.op("Unsqueeze", factors, builder.constant([-1], "int64"))  # [B, T, 1]
        return builder.op("Mul", builder.cast(rows, "float32"), factors)
