"""ONNX Runtime with our own CPU operators (``plugins/csrc/cpu``): four operators a layer, the cache in place."""

from typing import ClassVar

from ...spec.target import Activation, ModelSpec
from ..graph_builder import GraphBuilder
from ..native_linear import DRAFTSMITH
from ..step import STEP, Columns
from .base import LayerAttention

ACTIVATIONS: dict[Activation, int] = {"silu": 0, "gelu_tanh": 1}
"""As in ``enum activation`` of kernels.h."""


class NativeDialect:
    """See ``Dialect``. ``past_*`` and ``present_*`` of a layer should be bound to the same memory.

    The memory of ``past_key_*`` [B, Hkv, S, Dh] is laid out [B, Hkv, S / 16, Dh, 16].
    """

    opset: ClassVar[int] = 23

    def __init__(self, graph: GraphBuilder, spec: ModelSpec, columns: Columns) -> None:
        del columns  # The operator reads the tokens that are there.
        self._graph = graph
        self._spec = spec

    def begin(self, windows: set[int | None]) -> None:
        """See ``Dialect``: nothing is shared."""

    def norm(self, x: str, weight: str) -> str:
        """See ``Dialect``."""
        return self._graph.op("RmsNorm", x, weight, domain=DRAFTSMITH, epsilon=self._spec.norm_eps)

    def add_norm(self, x: str, delta: str, weight: str) -> tuple[str, str]:
        """See ``Dialect``."""
        normed, total = self._graph.ops(
            "AddRmsNorm", x, delta, weight, domain=DRAFTSMITH, outputs=(None, None), epsilon=self._spec.norm_eps
        )
        return normed, total

    def gated(self, kind: Activation, gate_up: str) -> str:
        """See ``Dialect``."""
        return self._graph.op("GatedActivation", gate_up, domain=DRAFTSMITH, activation=ACTIVATIONS[kind])

    def attention(self, layer: LayerAttention, qkv: str) -> str:
        """See ``Dialect``."""
        spec = self._spec
        return self._graph.ops(
            "CachedAttention",
            qkv,
            layer.past_key,
            layer.past_value,
            STEP.positions,
            STEP.past_lengths,
            STEP.query_lengths,
            STEP.tree_mask,
            layer.cos,
            layer.sin,
            layer.q_norm or "",
            layer.k_norm or "",
            domain=DRAFTSMITH,
            outputs=(None, layer.present_key, layer.present_value),
            num_heads=spec.num_heads,
            num_kv_heads=spec.num_kv_heads,
            window=layer.window or 0,
            scale=spec.attention_scale,
            epsilon=spec.norm_eps,
        )[0]
