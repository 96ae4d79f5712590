"""Initializers of a written graph, for another graph in the same folder that reads the same weights file."""

from collections.abc import Mapping
from pathlib import Path

import onnx

from ..errors import BuildError


class StoredTensors:
    """By name, as they lie in the weights file beside the graph; no weights are read."""

    def __init__(self, graph: Path) -> None:
        self._where = graph.name
        model = onnx.load(graph, load_external_data=False)
        self._tensors: Mapping[str, onnx.TensorProto] = {
            tensor.name: tensor
            for tensor in model.graph.initializer
            if tensor.data_location == onnx.TensorProto.EXTERNAL
        }

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def get(self, name: str) -> onnx.TensorProto:
        """One initializer; raises ``BuildError`` where the graph has none of that name."""
        if name not in self._tensors:
            raise BuildError(f"tensor {name}", expected="it in the target's graph", found="none", where=self._where)
        return self._tensors[name]
