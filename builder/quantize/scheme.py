"""The INT8 form of a linear layer for ONNX Runtime, row-independent: fixed steps, integer products.

Activations are uint8 with zero point 128, weights int8: the product that ONNX Runtime has fast kernels for. Sums are
exact integers on every CPU as long as the session asks for exact products where the CPU saturates pair sums (see
``docs/decisions.md``, "Exact integer products").
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..graph.graph_builder import MICROSOFT, GraphBuilder
from ..graph.linear import add_bias
from ..graph.vocabulary_tables import FloatTable
from .codes import Codes, column_scales, round_columns

FloatArray = npt.NDArray[np.float32]
ZERO_POINT = 128
PLANE_STEPS = 256
"""A plane counts in steps of 256 of the next one: a power of two, so that only the sum of the planes rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Linear:
    """A ``LinearPlan``.

    ``planes``: of 8 bits that hold an activation, 1 to 3; each holds what the ones before left over, in finer steps,
    and all go through one matmul as rows of their own. ``step``: of the last plane. Values beyond the range saturate.
    ``codes`` int8 [d_in, d_out], ``scales`` [d_out]: the weights, whose input channels expect what the graph gives them
    (divided by the factors of ``Int8Plan``). ``bias_factors`` [d_out]: what a bias must be multiplied with, or None.
    """

    planes: int
    step: float
    codes: Codes
    scales: FloatArray
    bias_factors: FloatArray | None = None

    def emit(self, builder: GraphBuilder, x: str, weight: FloatArray, bias: FloatArray | None, name: str) -> str:
        """See ``LinearPlan`` of the graph; ``x`` has three dimensions. ``weight`` gives the shape alone."""
        if weight.shape != self.codes.shape:
            raise ValueError(f"{name}: the plan is for {self.codes.shape}, the graph's weight is {weight.shape}")
        zero = builder.constant(ZERO_POINT, "uint8")
        step = builder.constant(self.step, "float32")
        codes = builder.weight(f"{name}.codes", self.codes)
        scales = builder.weight(f"{name}.scales", self.scales)
        rows = self._planes(builder, x, zero)
        y = builder.op("MatMulIntegerToFloat", rows, codes, step, scales, zero, domain=MICROSOFT)
        if self.planes > 1:
            y = self._join(builder, y)
        if bias is not None and self.bias_factors is not None:
            bias = bias * self.bias_factors
        return add_bias(builder, y, bias, name)

    def _planes(self, builder: GraphBuilder, x: str, zero: str) -> str:
        """[B, T, d_in] -> uint8 [B, planes T, d_in]."""
        planes = []
        for index in range(self.planes):
            size = np.float32(self.step) * np.float32(PLANE_STEPS) ** (self.planes - 1 - index)
            step = builder.constant(size, "float32")
            planes.append(builder.op("QuantizeLinear", x, step, zero))
            if index + 1 < self.planes:
                x = builder.op("Sub", x, builder.op("DequantizeLinear", planes[-1], step, zero))
        return planes[0] if self.planes == 1 else builder.op("Concat", *planes, axis=1)

    def _join(self, builder: GraphBuilder, y: str) -> str:
        """[B, planes T, d_out] -> [B, T, d_out]: the planes' products weighted and added."""
        weights = [float(PLANE_STEPS ** (self.planes - 1 - index)) for index in range(self.planes)]
        y = builder.op("Reshape", y, builder.constant([0, self.planes, -1], "int64"))  # [B, planes, T d_out]
        y = builder.op("MatMul", builder.constant([weights], "float32"), y)  # [B, 1, T d_out]
        return builder.op("Reshape", y, builder.constant([0, -1, self.codes.shape[1]], "int64"))


@dataclass(frozen=True, slots=True)
class Int8Embedding:
    """An ``EmbeddingPlan``: int8 rows with one scale a row."""

    def emit(self, builder: GraphBuilder, token_ids: str, weight: FloatArray, name: str) -> str:
        """See ``EmbeddingPlan`` of the graph."""
        scales = column_scales(weight.T)
        codes = round_columns(weight.T, scales).T  # [V, d], rows contiguous
        table = FloatTable(
            name=builder.weight(f"{name}.codes", codes),
            dtype="int8",
            num_rows=codes.shape[0],
            width=codes.shape[1],
            scales=builder.weight(f"{name}.scales", scales),
        )
        return table.look_up(builder, token_ids)
