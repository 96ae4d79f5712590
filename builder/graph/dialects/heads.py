"""Splitting what joined linears give (heads, gate and up), for dialects without a fused operator."""

from collections.abc import Callable

from ...spec.target import ModelSpec
from ..graph_builder import GraphBuilder
from .base import LayerAttention

Norm = Callable[[str, str], str]
"""RMS norm of a float32 value by a weight."""


def split_gate(graph: GraphBuilder, spec: ModelSpec, gate_up: str) -> tuple[str, str]:
    """[B, T, 2 I] -> gate and up, each [B, T, I]."""
    sizes = graph.constant([spec.intermediate_size] * 2, "int64")
    gate, up = graph.ops("Split", gate_up, sizes, outputs=(None, None), axis=-1)
    return gate, up


class HeadSplitter:
    """Knows the sizes of q, k and v."""

    def __init__(self, graph: GraphBuilder, spec: ModelSpec, norm: Norm) -> None:
        self._graph = graph
        self._spec = spec
        self._norm = norm

    def split(self, layer: LayerAttention, qkv: str) -> tuple[str, str, str]:
        """[B, T, (H + 2 Hkv) Dh] -> q [B, H, T, Dh], k and v [B, Hkv, T, Dh]; q and k are normed where weights are."""
        graph, spec = self._graph, self._spec
        kv_size = spec.num_kv_heads * spec.head_dim
        sizes = graph.constant([spec.num_heads * spec.head_dim, kv_size, kv_size], "int64")
        q, k, v = graph.ops("Split", qkv, sizes, outputs=(None, None, None), axis=-1)
        return (
            self._heads(q, spec.num_heads, layer.q_norm),
            self._heads(k, spec.num_kv_heads, layer.k_norm),
            self._heads(v, spec.num_kv_heads, None),
        )

    def join(self, heads: str) -> str:
        """[B, H, T, Dh] -> [B, T, H Dh]."""
        graph, spec = self._graph, self._spec
        rows = graph.op("Transpose", heads, perm=[0, 2, 1, 3])
        return graph.op("Reshape", rows, graph.constant([0, 0, spec.num_heads * spec.head_dim], "int64"))

    def _heads(self, x: str, num_heads: int, norm_weight: str | None) -> str:
        graph = self._graph
        x = graph.op("Reshape", x, graph.constant([0, 0, num_heads, self._spec.head_dim], "int64"))
        if norm_weight is not None:
            x = norm_in_float32(graph, self._norm, x, norm_weight)
        return graph.op("Transpose", x, perm=[0, 2, 1, 3])


def norm_in_float32(graph: GraphBuilder, norm: Norm, x: str, weight: str) -> str:
    """The norm of a value in the compute type."""
    if graph.compute == "float32":
        return norm(x, weight)
    return graph.cast(norm(graph.cast(x, "float32"), weight), graph.compute)
