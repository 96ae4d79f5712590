"""ONNX Runtime: fused contrib operators, keys and values appended in place by ``GroupQueryAttention``."""

from typing import ClassVar

from ...spec.target import Activation, ModelSpec
from ..graph_builder import MICROSOFT, GraphBuilder
from ..step import STEP, Columns, Visibility
from .base import LayerAttention
from .heads import norm_in_float32, split_gate


class OnnxRuntimeDialect:
    """See ``Dialect``. The runtime must bind ``past_*`` and ``present_*`` of a layer to the same memory."""

    opset: ClassVar[int] = 23

    def __init__(self, graph: GraphBuilder, spec: ModelSpec, columns: Columns) -> None:
        self._graph = graph
        self._spec = spec
        self._columns: Columns = columns
        self._biases: dict[int | None, str] = {}

    def begin(self, windows: set[int | None]) -> None:
        """See ``Dialect``."""
        graph = self._graph
        visibility = Visibility(graph, self._columns)
        with graph.scope("step"):
            total = graph.op("Add", STEP.past_lengths, STEP.query_lengths)
            self._last_index = graph.op("Sub", total, graph.constant(1, "int32"))  # [B]
            self._total = graph.cast(visibility.num_columns, "int32")  # []
            self._positions = graph.cast(STEP.positions, "int64")
        self._biases = visibility.biases(windows)

    def norm(self, x: str, weight: str) -> str:
        """See ``Dialect``."""
        return self._graph.op("RMSNormalization", x, weight, axis=-1, epsilon=self._spec.norm_eps)

    def add_norm(self, x: str, delta: str, weight: str) -> tuple[str, str]:
        """See ``Dialect``."""
        normed, _, _, total = self._graph.ops(
            "SkipSimplifiedLayerNormalization",
            x,
            delta,
            weight,
            domain=MICROSOFT,
            outputs=(None, "", "", None),
            epsilon=self._spec.norm_eps,
        )
        return normed, total

    def gated(self, kind: Activation, gate_up: str) -> str:
        """See ``Dialect``."""
        gate, up = split_gate(self._graph, self._spec, gate_up)
        return self._graph.op("Mul", self._activation(kind, gate), up)

    def _activation(self, kind: Activation, x: str) -> str:
        if kind == "silu":
            return self._graph.op("QuickGelu", x, domain=MICROSOFT, alpha=1.0)
        return self._graph.op("FastGelu", x, domain=MICROSOFT)

    def attention(self, layer: LayerAttention, qkv: str) -> str:
        """See ``Dialect``."""
        spec = self._spec
        q, k, v = self._norm_heads(layer, qkv)
        return self._graph.ops(
            "GroupQueryAttention",
            q,
            k,
            v,
            layer.past_key,
            layer.past_value,
            self._last_index,
            self._total,
            layer.cos,
            layer.sin,
            self._positions,
            self._biases[layer.window],
            "",  # head_sink
            "",  # k_scale
            "",  # v_scale
            "",  # q_norm_weight: the CPU kernel refuses it
            "",  # k_norm_weight
            STEP.query_lengths,
            domain=MICROSOFT,
            outputs=(None, layer.present_key, layer.present_value),
            num_heads=spec.num_heads,
            kv_num_heads=spec.num_kv_heads,
            scale=spec.attention_scale,
            do_rotary=1,
        )[0]

    def _norm_heads(self, layer: LayerAttention, qkv: str) -> tuple[str, str, str]:
        """q, k, v; (packed, "", "") where heads have no norms."""
        if layer.q_norm is None or layer.k_norm is None:
            return qkv, "", ""
        graph, spec = self._graph, self._spec
        q_size, kv_size = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        sizes = graph.constant([q_size, kv_size, kv_size], "int64")
        q, k, v = graph.ops("Split", qkv, sizes, outputs=(None, None, None), axis=-1)
        heads = graph.constant([0, 0, -1, spec.head_dim], "int64")
        flat = graph.constant([0, 0, -1], "int64")
        q = norm_in_float32(graph, self.norm, graph.op("Reshape", q, heads), layer.q_norm)
        k = norm_in_float32(graph, self.norm, graph.op("Reshape", k, heads), layer.k_norm)
        return graph.op("Reshape", q, flat), graph.op("Reshape", k, flat), v
