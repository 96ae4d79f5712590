"""Collects nodes into an ONNX function: values are names, nested calls make expressions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

ELEMENT_TYPES = {
    "float32": onnx.TensorProto.FLOAT,
    "float16": onnx.TensorProto.FLOAT16,
    "int32": onnx.TensorProto.INT32,
    "int64": onnx.TensorProto.INT64,
    "uint64": onnx.TensorProto.UINT64,
    "float64": onnx.TensorProto.DOUBLE,
    "bool": onnx.TensorProto.BOOL,
}


class FunctionBuilder:
    """A function, or the body of a loop in one, under construction. Names start with ``prefix``.

    ``depth``: 0 for the function, 1 for a loop's body in it, and so on.
    """

    def __init__(self, prefix: str = "", *, depth: int = 0) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.depth = depth
        self._prefix = prefix
        self._constants: dict[tuple[str, bytes, tuple[int, ...]], str] = {}

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output; returns its name."""
        return self.ops(kind, *inputs, num_outputs=1, **attributes)[0]

    def ops(self, kind: str, *inputs: str, num_outputs: int, **attributes: Any) -> list[str]:
        """A node with several outputs; returns their names."""
        number = len(self.nodes)
        names = [f"{self._prefix}{kind}_{number}" + (f".{i}" if i else "") for i in range(num_outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def named(self, name: str, value: str) -> str:
        """``value`` under another name (an output)."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        return name

    def constant(self, value: object, dtype: str = "float32") -> str:
        """A small tensor; equal ones are made once."""
        array = np.asarray(value, dtype=dtype)
        key = (dtype, array.tobytes(), array.shape)
        if key not in self._constants:
            self._constants[key] = self.op("Constant", value=numpy_helper.from_array(array))
        return self._constants[key]

    def attribute(self, name: str) -> str:
        """The function's integer attribute as an int64 scalar."""
        node = helper.make_node("Constant", [], [f"{self._prefix}{name}"])
        reference = onnx.AttributeProto(name="value_int", ref_attr_name=name, type=onnx.AttributeProto.INT)
        node.attribute.append(reference)
        self.nodes.append(node)
        return str(node.output[0])

    def cast(self, value: str, dtype: str) -> str:
        """``value`` as ``dtype``."""
        return self.op("Cast", value, to=ELEMENT_TYPES[dtype])

    def axes(self, *axes: int) -> str:
        """A constant int64 list."""
        return self.constant(list(axes), "int64")

    def finish(
        self,
        name: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        required: Sequence[str],
        defaults: Mapping[str, int | str],
        opset: int,
    ) -> onnx.FunctionProto:
        """The function in the domain ``draftsmith``; ``required`` and ``defaults``: its attributes."""
        protos = [helper.make_attribute(key, value) for key, value in defaults.items()]
        return helper.make_function(
            "draftsmith",
            name,
            list(inputs),
            list(outputs),
            self.nodes,
            [helper.make_opsetid("", opset)],
            list(required),
            protos,
        )
