"""Standard ONNX operators of opset 24: for TensorRT-RTX and TensorRT from 10 on; ONNX Runtime runs them too."""

from typing import ClassVar

from ...spec.target import Activation, ModelSpec
from ..graph_builder import GraphBuilder
from ..step import STEP, Columns, Visibility
from .base import LayerAttention
from .heads import HeadSplitter, split_gate


class StandardDialect:
    """See ``Dialect``."""

    opset: ClassVar[int] = 24

    def __init__(self, graph: GraphBuilder, spec: ModelSpec, columns: Columns) -> None:
        self._graph = graph
        self._spec = spec
        self._columns = columns
        self._heads = HeadSplitter(graph, spec, self.norm)
        self._biases: dict[int | None, str] = {}

    def begin(self, windows: set[int | None]) -> None:
        """See ``Dialect``."""
        graph = self._graph
        visibility = Visibility(graph, self._columns)
        with graph.scope("step"):
            self._past = graph.cast(STEP.past_lengths, "int64")  # [B]
            self._positions = graph.cast(STEP.positions, "int64")  # [B, T]
            self._valid = ""
            if self._columns == "capacity":  # where each row's block ends, so that a kernel may stop there
                tokens = graph.op("Shape", STEP.token_ids, start=1, end=2)
                self._valid = graph.op("Add", self._past, tokens)  # [B]
            self._end = graph.op("Reshape", visibility.num_columns, graph.constant([1], "int64"))
        self._biases = visibility.biases(windows)

    def norm(self, x: str, weight: str) -> str:
        """See ``Dialect``."""
        return self._graph.op("RMSNormalization", x, weight, axis=-1, epsilon=self._spec.norm_eps)

    def add_norm(self, x: str, delta: str, weight: str) -> tuple[str, str]:
        """See ``Dialect``."""
        total = self._graph.op("Add", x, delta)
        return self.norm(total, weight), total

    def gated(self, kind: Activation, gate_up: str) -> str:
        """See ``Dialect``."""
        gate, up = split_gate(self._graph, self._spec, gate_up)
        return self._graph.op("Mul", self._activation(kind, gate), up)

    def _activation(self, kind: Activation, x: str) -> str:
        if kind == "silu":
            return self._graph.op("Mul", x, self._graph.op("Sigmoid", x))
        return self._graph.op("Gelu", x, approximate="tanh")

    def attention(self, layer: LayerAttention, qkv: str) -> str:
        """See ``Dialect``."""
        graph = self._graph
        q, k, v = self._heads.split(layer, qkv)
        q = graph.op("RotaryEmbedding", q, layer.cos, layer.sin, self._positions)
        k = graph.op("RotaryEmbedding", k, layer.cos, layer.sin, self._positions)
        keys = self._extend(layer.past_key, k, layer.present_key)
        values = self._extend(layer.past_value, v, layer.present_value)
        bias = self._biases[layer.window]
        inputs = (q, keys, values, bias, "", "", self._valid)
        return self._heads.join(graph.op("Attention", *inputs, scale=self._spec.attention_scale))

    def _extend(self, past: str, block: str, present: str) -> str:
        """Write the block behind each row's cached tokens; returns the columns that attention reads."""
        graph = self._graph
        graph.op("TensorScatter", past, block, self._past, output=present, axis=2)
        if self._columns == "capacity":
            return present
        start, axis = graph.constant([0], "int64"), graph.constant([2], "int64")
        return graph.op("Slice", present, start, self._end, axis)  # [B, Hkv, L, Dh]
