"""Linear layers as ``draftsmith.QuantizedLinear``: 8-bit weights in panels, activations rounded to 16 bits a row."""

import numpy as np
import numpy.typing as npt

from draftsmith.plugins.packing import pack_linear

from .graph_builder import GraphBuilder

DRAFTSMITH = "draftsmith"
FloatArray = npt.NDArray[np.float32]


class NativeLinear:
    """See ``LinearPlan``; for the dialect "native" alone."""

    def emit(self, builder: GraphBuilder, x: str, weight: FloatArray, bias: FloatArray | None, name: str) -> str:
        """See ``LinearPlan``."""
        packed = pack_linear(weight.T)
        inputs = [
            x,
            builder.weight(f"{name}.weight", packed.weights),
            builder.weight(f"{name}.scales", packed.scales),
            builder.weight(f"{name}.sums", packed.sums),
        ]
        if bias is not None:
            inputs.append(builder.weight(f"{name}.bias", bias, "float32"))
        return builder.op("QuantizedLinear", *inputs, domain=DRAFTSMITH, num_outputs=packed.num_outputs)
