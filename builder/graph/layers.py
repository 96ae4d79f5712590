"""The decoder layers of all supported families, written once; dialects supply the operators, plans the linears."""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from ..spec.target import ModelSpec, RopeSpec
from .dialects import Dialect, LayerAttention
from .graph_builder import GraphBuilder
from .linear import LinearPlan
from .rope import rope_tables

FloatArray = npt.NDArray[np.float32]
ReadTensor = Callable[[str], FloatArray]
"""Reads one checkpoint tensor by its Hugging Face name, as float32."""
PlanFor = Callable[[str], LinearPlan]
"""The plan of a joined linear by its name ("layers.3.qkv")."""


class LayerWriter:
    """Writes layers one after the other; holds the weights of one joined linear at a time."""

    def __init__(
        self,
        graph: GraphBuilder,
        spec: ModelSpec,
        dialect: Dialect,
        read: ReadTensor,
        plan_for: PlanFor,
        *,
        norm_factors: Mapping[str, FloatArray],
    ) -> None:
        self._graph = graph
        self._spec = spec
        self._dialect = dialect
        self._read = read
        self._plan_for = plan_for
        self._norm_factors = norm_factors
        self._tables: dict[RopeSpec, tuple[str, str]] = {}

    def write_tables(self, capacity: int) -> None:
        """Store the cosine and sine tables, one pair for each kind of rope."""
        for rope in dict.fromkeys(self._rope_of(i) for i in range(self._spec.num_layers)):
            name = "rope" if rope == self._spec.rope else "rope_local"
            cos, sin = rope_tables(rope, self._spec.head_dim, capacity)
            kind = self._graph.compute
            self._tables[rope] = (
                self._graph.weight(f"{name}.cos", cos, kind),
                self._graph.weight(f"{name}.sin", sin, kind),
            )

    def windows(self) -> set[int | None]:
        """The windows that layers have (None: all keys)."""
        return {self._window_of(i) for i in range(self._spec.num_layers)}

    def norm_weight(self, tensor: str, name: str) -> str:
        """Store a norm's weight (offset included, divided by its ``norm_factors``) as float32."""
        weight = self._read(tensor) + np.float32(self._spec.norm_offset)
        if name in self._norm_factors:
            weight = weight / self._norm_factors[name]
        return self._graph.weight(name, weight, "float32")

    def write_layer(self, index: int, x: str, normed: str) -> tuple[str, str]:
        """Residual ``x`` and its norm ``normed``, both [B, T, d] -> (residual, what is to be added to it)."""
        prefix, name = f"model.layers.{index}", f"layers.{index}"
        with self._graph.scope(name):
            delta = self._post_norm(self._attention(index, normed), index, "attention")
            before = "pre_feedforward_layernorm" if self._spec.post_norms else "post_attention_layernorm"
            weight = self.norm_weight(f"{prefix}.{before}.weight", f"{name}.mlp_norm")
            normed, x = self._dialect.add_norm(x, delta, weight)
            return x, self._post_norm(self._mlp(index, normed), index, "feedforward")

    def _post_norm(self, x: str, index: int, part: str) -> str:
        """The norm that Gemma puts behind attention and MLP."""
        if not self._spec.post_norms:
            return x
        tensor = f"model.layers.{index}.post_{part}_layernorm.weight"
        return self._dialect.norm(x, self.norm_weight(tensor, f"layers.{index}.post_{part}_norm"))

    def _attention(self, index: int, x: str) -> str:
        """[B, T, d] -> [B, T, d], float32."""
        attn = f"model.layers.{index}.self_attn"
        qkv = self._linear(f"layers.{index}.qkv", [f"{attn}.{p}_proj" for p in "qkv"], x, bias=self._spec.qkv_bias)
        cos, sin = self._tables[self._rope_of(index)]
        q_norm = k_norm = None
        if self._spec.qk_norm:
            q_norm = self.norm_weight(f"{attn}.q_norm.weight", f"layers.{index}.q_norm")
            k_norm = self.norm_weight(f"{attn}.k_norm.weight", f"layers.{index}.k_norm")
        facts = LayerAttention(
            index=index, cos=cos, sin=sin, q_norm=q_norm, k_norm=k_norm, window=self._window_of(index)
        )
        y = self._dialect.attention(facts, qkv)
        return self._to_residual(self._linear(f"layers.{index}.o", [f"{attn}.o_proj"], y, bias=self._spec.o_bias))

    def _mlp(self, index: int, x: str) -> str:
        """[B, T, d] -> [B, T, d], float32."""
        mlp = f"model.layers.{index}.mlp"
        parts = [f"{mlp}.gate_proj", f"{mlp}.up_proj"]
        both = self._linear(f"layers.{index}.gate_up", parts, x, bias=self._spec.mlp_bias)
        y = self._dialect.gated(self._spec.activation, both)
        return self._to_residual(
            self._linear(f"layers.{index}.down", [f"{mlp}.down_proj"], y, bias=self._spec.mlp_bias)
        )

    def _linear(self, name: str, modules: list[str], x: str, *, bias: bool) -> str:
        """One matmul for ``modules`` that share their input."""
        if self._graph.compute != "float32" and not name.endswith((".o", ".down")):
            x = self._graph.cast(x, self._graph.compute)
        weight = join([self._read(f"{module}.weight") for module in modules])
        biases = join([self._read(f"{module}.bias") for module in modules]) if bias else None
        return self._plan_for(name).emit(self._graph, x, weight.T, biases, name)

    def _to_residual(self, x: str) -> str:
        return x if self._graph.compute == "float32" else self._graph.cast(x, "float32")

    def _rope_of(self, index: int) -> RopeSpec:
        local = self._spec.local_rope
        return local if local is not None and self._spec.layer_kinds[index] == "sliding" else self._spec.rope

    def _window_of(self, index: int) -> int | None:
        return self._spec.sliding_window if self._spec.layer_kinds[index] == "sliding" else None


def join(parts: list[FloatArray]) -> FloatArray:
    """Tensors one above the other; a single one is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=0)
