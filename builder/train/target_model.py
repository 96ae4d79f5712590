"""The target as a torch module for training: features, final hidden states, and cached steps for writing text.

The residual stream, norms and softmax are float32; linears and the cache are ``dtype``; the head is ``head_dtype``
(float16 keeps three more bits of a logit than bfloat16). Formulas follow transformers, as ``quantize/decoder.py`` does.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from ..graph.rope import rope_tables
from ..model import EMBEDDING, FINAL_NORM, HEAD
from ..spec.target import ModelSpec, RopeSpec
from .backend import compile_core

ReadTensor = Callable[[str], npt.NDArray[np.float32]]
Cache = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer, [B, K, S, D]."""


@dataclass(frozen=True, slots=True)
class TargetOutput:
    """``features`` [B, T, 3 d] in the linears' dtype; ``hidden`` [B, T, d] float32, after the final norm."""

    features: torch.Tensor
    hidden: torch.Tensor


class TargetLayer:
    """One layer's weights on the device: joined linears [out, in] and norms with their offset added."""

    def __init__(self, spec: ModelSpec, read: Callable[[str], torch.Tensor], index: int, dtype: torch.dtype) -> None:
        prefix = f"model.layers.{index}"
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"

        def join(names: list[str], has_bias: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
            weight = torch.cat([read(f"{name}.weight") for name in names]).to(dtype)
            return weight, torch.cat([read(f"{name}.bias") for name in names]).to(dtype) if has_bias else None

        def norm(name: str) -> torch.Tensor:
            return read(f"{name}.weight") + spec.norm_offset

        self.qkv = join([f"{attention}.{part}_proj" for part in "qkv"], spec.qkv_bias)
        self.output = join([f"{attention}.o_proj"], spec.o_bias)
        self.gate_up = join([f"{mlp}.gate_proj", f"{mlp}.up_proj"], spec.mlp_bias)
        self.down = join([f"{mlp}.down_proj"], spec.mlp_bias)
        self.input_norm = norm(f"{prefix}.input_layernorm")
        self.mlp_norm = norm(f"{prefix}.{'pre_feedforward' if spec.post_norms else 'post_attention'}_layernorm")
        self.post_norms = (
            [norm(f"{prefix}.post_{part}_layernorm") for part in ("attention", "feedforward")]
            if spec.post_norms
            else []
        )
        self.head_norms = [norm(f"{attention}.{part}_norm") for part in "qk"] if spec.qk_norm else []
        local = spec.layer_kinds[index] == "sliding"
        self.window = spec.sliding_window if local else None
        self.rope = spec.local_rope if local and spec.local_rope is not None else spec.rope


class TargetModel:
    """Frozen weights of a target; all methods run without gradients."""

    def __init__(
        self,
        spec: ModelSpec,
        read: ReadTensor,
        *,
        device: str,
        dtype: torch.dtype,
        head_dtype: torch.dtype,
        max_length: int,
    ) -> None:
        self.spec, self.device, self.dtype = spec, torch.device(device), dtype

        def load(name: str) -> torch.Tensor:
            return torch.from_numpy(read(name)).to(self.device)

        embedding = load(EMBEDDING)
        self.embedding = embedding.to(dtype)  # [V, d]
        self.head = (embedding if spec.tied_head else load(HEAD)).to(head_dtype)  # [V, d]
        self.final_norm = load(FINAL_NORM) + spec.norm_offset
        self.layers = [TargetLayer(spec, load, index, dtype) for index in range(spec.num_layers)]
        self._run_layer = compile_core(device, self._layer)
        self._tables = {
            rope: tuple(
                torch.from_numpy(table.astype(np.float32)).to(self.device)
                for table in rope_tables(rope, spec.head_dim, max_length)
            )
            for rope in {spec.rope, spec.local_rope or spec.rope}
        }

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def run(self, token_ids: torch.Tensor) -> TargetOutput:
        """Whole sequences: ``token_ids`` [B, T]; tokens behind a sequence's end change nothing before it."""
        spec = self.spec
        x = self.embed(token_ids)
        features: list[torch.Tensor] = []
        wanted = set(spec.default_feature_layers)
        kept: dict[int, torch.Tensor] = {}
        for index, layer in enumerate(self.layers):
            if index in wanted:
                kept[index] = x.to(self.dtype)
            x = self._run_layer(layer, x, *(table[: token_ids.shape[1]] for table in self._table(layer.rope)))
        features = [kept[index] for index in spec.default_feature_layers]
        return TargetOutput(torch.cat(features, dim=-1), self._norm(x, self.final_norm))

    def new_cache(self, batch: int, length: int) -> Cache:
        """Empty keys and values for ``batch`` sequences of up to ``length`` tokens."""
        shape = (batch, self.spec.num_kv_heads, length, self.spec.head_dim)
        return [
            (
                torch.zeros(shape, device=self.device, dtype=self.dtype),
                torch.zeros(shape, device=self.device, dtype=self.dtype),
            )
            for _ in self.layers
        ]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, token_ids: torch.Tensor, position: torch.Tensor, cache: Cache, span: int) -> torch.Tensor:
        """One token a sequence, all at ``position`` (int64 [1], on the device) < ``span``: logits [B, V].

        Reads and writes the first ``span`` columns of the cache. Nothing here depends on the position's value, so a
        CUDA graph of one call serves every position below ``span``.
        """
        x = self.embed(token_ids[:, None])
        columns = torch.arange(span, device=self.device)
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            q, k, v = self._heads(layer, x, *(table[position] for table in self._table(layer.rope)))
            keys.index_copy_(2, position, k)
            values.index_copy_(2, position, v)
            visible = columns <= position
            if layer.window is not None:
                visible &= columns > position - layer.window
            # the heads that share keys are rows of one query
            grouped = q.reshape(len(q), self.spec.num_kv_heads, -1, self.spec.head_dim)
            attended = functional.scaled_dot_product_attention(
                grouped,
                keys[:, :, :span],
                values[:, :, :span],
                attn_mask=visible.view(1, 1, 1, -1).expand(len(q), 1, grouped.shape[2], -1),
                scale=self.spec.attention_scale,
            )
            x = self._finish(layer, x, attended.reshape(len(q), self.spec.num_heads, 1, self.spec.head_dim))
        return self.logits(self._norm(x[:, 0], self.final_norm))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normed hidden states [M, d] -> logits [M, V] in the head's dtype."""
        return hidden.to(self.head.dtype) @ self.head.T

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Scaled embeddings, float32 [..., d]."""
        return self.embedding[token_ids].float() * self.spec.embed_scale

    def _layer(self, layer: TargetLayer, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """One layer over whole sequences [B, T, d]."""
        return self._finish(layer, x, self._attend(layer, *self._heads(layer, x, cos, sin)))

    def _table(self, rope: RopeSpec) -> tuple[torch.Tensor, ...]:
        return self._tables[rope]

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, weight.shape, weight, self.spec.norm_eps)

    def _linear(self, x: torch.Tensor, weights: tuple[torch.Tensor, torch.Tensor | None]) -> torch.Tensor:
        return functional.linear(x.to(self.dtype), *weights)

    def _heads(
        self, layer: TargetLayer, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Normed and rotated q [B, H, T, D], k and v [B, K, T, D]."""
        spec = self.spec
        heads = self._linear(self._norm(x, layer.input_norm), layer.qkv)
        heads = heads.view(*x.shape[:2], -1, spec.head_dim).transpose(1, 2)
        q, k, v = heads.split([spec.num_heads, spec.num_kv_heads, spec.num_kv_heads], dim=1)
        if layer.head_norms:
            q, k = (
                functional.rms_norm(part.float(), weight.shape, weight, spec.norm_eps)
                for part, weight in zip((q, k), layer.head_norms, strict=True)
            )
        return rotate(q, cos, sin).to(self.dtype), rotate(k, cos, sin).to(self.dtype), v

    def _attend(self, layer: TargetLayer, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Causal attention [B, H, T, D] of whole sequences."""
        mask, size = None, q.shape[2]
        if layer.window is not None and layer.window < size:
            index = torch.arange(size, device=self.device)
            distance = index[:, None] - index[None, :]
            mask = (distance >= 0) & (distance < layer.window)
        group = self.spec.num_heads // self.spec.num_kv_heads
        k, v = (part.repeat_interleave(group, dim=1) for part in (k, v))
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, scale=self.spec.attention_scale
        )

    def _finish(self, layer: TargetLayer, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """From a layer's input and its attention [B, H, T, D] to its result [B, T, d]."""
        attended = attended.transpose(1, 2).reshape(*x.shape[:2], -1)
        x = x + self._post_norm(layer, 0, self._linear(attended, layer.output))
        gate, up = self._linear(self._norm(x, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
        return x + self._post_norm(layer, 1, self._linear(activate(self.spec.activation, gate) * up, layer.down))

    def _post_norm(self, layer: TargetLayer, which: int, x: torch.Tensor) -> torch.Tensor:
        return self._norm(x.float(), layer.post_norms[which]) if layer.post_norms else x


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding in float32: ``x`` [..., T, D], ``cos`` and ``sin`` [T, D / 2]."""
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def activate(kind: str, x: torch.Tensor) -> torch.Tensor:
    """``silu`` or ``gelu_tanh``."""
    return functional.silu(x) if kind == "silu" else functional.gelu(x, approximate="tanh")
