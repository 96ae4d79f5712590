"""What a dialect of operators must offer; the model's structure (``layers``) is the same in all of them."""

from dataclasses import dataclass
from typing import Protocol

from ...spec.target import Activation, ModelSpec
from ..graph_builder import GraphBuilder
from ..step import Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerAttention:
    """What one layer's attention needs besides q, k and v: names of stored tensors and facts.

    ``cos`` and ``sin``: tables [capacity, Dh / 2]. ``q_norm`` and ``k_norm``: weights [Dh] or None. ``window``: keys at
    distance < window, None for all.
    """

    index: int
    cos: str
    sin: str
    q_norm: str | None
    k_norm: str | None
    window: int | None

    @property
    def past_key(self) -> str:
        """Graph input [B, Hkv, S, Dh]."""
        return f"past_key_{self.index}"

    @property
    def past_value(self) -> str:
        """Graph input [B, Hkv, S, Dh]."""
        return f"past_value_{self.index}"

    @property
    def present_key(self) -> str:
        """Graph output [B, Hkv, S, Dh]."""
        return f"present_key_{self.index}"

    @property
    def present_value(self) -> str:
        """Graph output [B, Hkv, S, Dh]."""
        return f"present_value_{self.index}"


class Dialect(Protocol):
    """Writes the parts of a model that operator sets express differently.

    The residual stream is float32; linears and attention have the graph's compute type.
    """

    def begin(self, windows: set[int | None]) -> None:
        """Write what all layers share; ``windows`` are those that layers have."""

    def norm(self, x: str, weight: str) -> str:
        """RMS norm of float32 ``x`` over its last axis times ``weight``."""

    def add_norm(self, x: str, delta: str, weight: str) -> tuple[str, str]:
        """(RMS norm of the sum, the sum ``x`` + ``delta``), all float32."""

    def gated(self, kind: Activation, gate_up: str) -> str:
        """The MLP's activation of the gate times up: [B, T, 2 I] -> [B, T, I]."""

    def attention(self, layer: LayerAttention, qkv: str) -> str:
        """Norm (where given) and rotate q and k, extend the cache, attend.

        ``qkv`` [B, T, (H + 2 Hkv) Dh] -> [B, T, H Dh]; the outputs ``present_*`` of the layer are written.
        """


class DialectFactory(Protocol):
    """Makes a dialect for a graph; ``opset`` is the ONNX operator set it is written in."""

    opset: int

    def __call__(self, graph: GraphBuilder, spec: ModelSpec, columns: Columns) -> Dialect: ...
