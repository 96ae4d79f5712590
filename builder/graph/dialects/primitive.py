"""Primitive operators of opset 17: for parsers that know no more (TensorRT 8.6)."""

import math
from typing import ClassVar

from ...spec.target import Activation, ModelSpec
from ..graph_builder import GraphBuilder
from ..step import STEP, Columns, Visibility
from .base import LayerAttention
from .heads import HeadSplitter, split_gate


class PrimitiveDialect:
    """See ``Dialect``."""

    opset: ClassVar[int] = 17

    def __init__(self, graph: GraphBuilder, spec: ModelSpec, columns: Columns) -> None:
        self._graph = graph
        self._spec = spec
        self._columns = columns
        self._heads = HeadSplitter(graph, spec, self.norm)
        self._biases: dict[int | None, str] = {}
        self._angles: dict[str, str] = {}

    def begin(self, windows: set[int | None]) -> None:
        """See ``Dialect``."""
        graph = self._graph
        visibility = Visibility(graph, self._columns)
        with graph.scope("step"):
            self._end = graph.op("Reshape", visibility.num_columns, graph.constant([1], "int64"))
            self._write_index = self._index_columns()
        self._biases = visibility.biases(windows)

    def norm(self, x: str, weight: str) -> str:
        """See ``Dialect``."""
        graph = self._graph
        mean = graph.op("ReduceMean", graph.op("Mul", x, x), axes=[-1], keepdims=1)
        root = graph.op("Sqrt", graph.op("Add", mean, graph.constant(self._spec.norm_eps, "float32")))
        return graph.op("Mul", graph.op("Div", x, root), weight)

    def add_norm(self, x: str, delta: str, weight: str) -> tuple[str, str]:
        """See ``Dialect``."""
        total = self._graph.op("Add", x, delta)
        return self.norm(total, weight), total

    def gated(self, kind: Activation, gate_up: str) -> str:
        """See ``Dialect``."""
        gate, up = split_gate(self._graph, self._spec, gate_up)
        return self._graph.op("Mul", self._activation(kind, gate), up)

    def _activation(self, kind: Activation, x: str) -> str:
        graph = self._graph
        if kind == "silu":
            return graph.op("Mul", x, graph.op("Sigmoid", x))
        half, one = graph.constant(0.5, graph.compute), graph.constant(1, graph.compute)
        cubic = graph.op("Mul", graph.op("Mul", x, x), graph.constant(0.044715, graph.compute))
        inner = graph.op("Mul", x, graph.op("Add", cubic, one))
        inner = graph.op("Tanh", graph.op("Mul", inner, graph.constant(math.sqrt(2 / math.pi), graph.compute)))
        return graph.op("Mul", graph.op("Mul", x, half), graph.op("Add", inner, one))

    def attention(self, layer: LayerAttention, qkv: str) -> str:
        """See ``Dialect``."""
        graph, spec = self._graph, self._spec
        q, k, v = self._heads.split(layer, qkv)
        q = graph.op("Mul", self._rotate(layer, q), graph.constant(spec.attention_scale, graph.compute))
        keys = self._extend(layer.past_key, self._rotate(layer, k), layer.present_key)
        values = self._extend(layer.past_value, v, layer.present_value)
        grouped = graph.constant([0, spec.num_kv_heads, -1, spec.head_dim], "int64")
        q = graph.op("Reshape", q, grouped)  # [B, Hkv, G T, Dh]
        scores = graph.op("MatMul", q, graph.op("Transpose", keys, perm=[0, 1, 3, 2]))  # [B, Hkv, G T, L]
        heads = graph.constant([0, spec.num_heads, -1, 0], "int64")
        scores = graph.op("Reshape", scores, heads)  # [B, H, T, L]
        weights = graph.op("Softmax", graph.op("Add", scores, self._biases[layer.window]), axis=-1)
        weights = graph.op("Reshape", weights, graph.constant([0, spec.num_kv_heads, -1, 0], "int64"))
        y = graph.op("MatMul", weights, values)  # [B, Hkv, G T, Dh]
        y = graph.op("Reshape", y, graph.constant([0, spec.num_heads, -1, spec.head_dim], "int64"))
        return self._heads.join(y)

    def _index_columns(self) -> str:
        """Cache column of each token of the block, int64 [B, Hkv, T, Dh]."""
        graph, spec = self._graph, self._spec
        tokens = graph.op("Shape", STEP.token_ids, start=1, end=2)
        steps = graph.op("Range", graph.constant(0, "int64"), self._scalar(tokens), graph.constant(1, "int64"))  # [T]
        past = graph.op("Unsqueeze", graph.cast(STEP.past_lengths, "int64"), graph.constant([1], "int64"))
        index = graph.op("Unsqueeze", graph.op("Add", past, steps), graph.constant([1, 3], "int64"))  # [B, 1, T, 1]
        shape = graph.constant([1, spec.num_kv_heads, 1, spec.head_dim], "int64")
        return graph.op("Expand", index, shape)

    def _scalar(self, value: str) -> str:
        return self._graph.op("Squeeze", value, self._graph.constant([0], "int64"))

    def _rotate(self, layer: LayerAttention, x: str) -> str:
        graph = self._graph
        half = graph.constant([self._spec.head_dim // 2] * 2, "int64")
        a, b = graph.ops("Split", x, half, outputs=(None, None), axis=-1)
        cos, sin = self._angle(layer.cos), self._angle(layer.sin)
        left = graph.op("Sub", graph.op("Mul", a, cos), graph.op("Mul", b, sin))
        right = graph.op("Add", graph.op("Mul", b, cos), graph.op("Mul", a, sin))
        return graph.op("Concat", left, right, axis=-1)

    def _angle(self, table: str) -> str:
        """Rows of a table at the block's positions, [B, 1, T, Dh / 2]; once a step for each table."""
        if table not in self._angles:
            graph = self._graph
            rows = graph.op("Gather", table, STEP.positions, axis=0)
            self._angles[table] = graph.op("Unsqueeze", rows, graph.constant([1], "int64"))
        return self._angles[table]

    def _extend(self, past: str, block: str, present: str) -> str:
        graph = self._graph
        graph.op("ScatterElements", past, self._write_index, block, output=present, axis=2)
        if self._columns == "capacity":
            return present
        start, axis = graph.constant([0], "int64"), graph.constant([2], "int64")
        return graph.op("Slice", present, start, self._end, axis)  # [B, Hkv, L, Dh]
