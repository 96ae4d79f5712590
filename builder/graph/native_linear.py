"""Linear layers as ``draftsmith.QuantizedLinear``: 8-bit weights in panels, activations rounded to 16 bits a row."""

import numpy as np
import numpy.typing as npt
from draftsmith.plugins.packing import pack_linear

from .graph_builder import GraphBuilder

DRAFTSMITH = "draftsmith"
FloatArray = npt.NDArray[np.float32]


class NativeLinear:
    """See ``LinearPlan``; for the dialect "native" alone. ``shared``: the name its tensors are stored under."""

    def __init__(self, shared: str | None = None) -> None:
        self._shared = shared

    def emit(self, builder: GraphBuilder, x: str, weight: FloatArray, bias: FloatArray | None, name: str) -> str:
        """See ``LinearPlan``."""
        stored = self._shared or name
        if self._shared is None:
            store_packed(builder, weight.T, name)
        inputs = [x, f"{stored}.weight", f"{stored}.scales", f"{stored}.sums"]
        if bias is not None:
            inputs.append(builder.weight(f"{name}.bias", bias, "float32"))
        return builder.op("QuantizedLinear", *inputs, domain=DRAFTSMITH, num_outputs=weight.shape[1])


class NativeEmbedding:
    """See ``EmbeddingPlan``: rows in 8 bits, stored as a linear layer, so that a tied head reads the same memory."""

    def emit(self, builder: GraphBuilder, token_ids: str, weight: FloatArray, name: str) -> str:
        """See ``EmbeddingPlan``."""
        store_packed(builder, weight, name)
        rows, width = weight.shape
        inputs = [token_ids, f"{name}.weight", f"{name}.scales"]
        return builder.op("PackedRows", *inputs, domain=DRAFTSMITH, num_outputs=rows, depth=width)


def store_packed(builder: GraphBuilder, weight: FloatArray, name: str) -> None:
    """Store ``weight`` [N, K] as the tensors that ``QuantizedLinear`` reads."""
    packed = pack_linear(weight)
    builder.weight(f"{name}.weight", packed.weights)
    builder.weight(f"{name}.scales", packed.scales)
    builder.weight(f"{name}.sums", packed.sums)
