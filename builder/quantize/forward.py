"""A decoder in NumPy, one layer at a time: shows what enters every joined linear.

Calibration must see each linear's input while one layer's weights are in memory; a session of the whole model would
hold all of them. The arithmetic follows transformers' modelling code; tests compare it with the graph that is served.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..graph.layers import join
from ..graph.rope import rope_tables
from ..spec.target import ModelSpec, RopeSpec

FloatArray = npt.NDArray[np.float32]
ReadTensor = Callable[[str], FloatArray]
"""Reads one checkpoint tensor by its Hugging Face name, as float32."""


class ApplyLinear(Protocol):
    """Computes one joined linear and may look at, or change, what goes in and out."""

    def __call__(self, name: str, x: FloatArray, weight: FloatArray, bias: FloatArray | None) -> FloatArray:
        """``x`` [M, d_in] times ``weight`` [d_in, d_out] plus ``bias``; ``name``: "layers.3.qkv"."""


def multiply(_name: str, x: FloatArray, weight: FloatArray, bias: FloatArray | None) -> FloatArray:
    """The plain product."""
    y = x @ weight
    return y if bias is None else y + bias


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFacts:
    """One joined linear: the modules whose rows it stacks, and whether they have biases."""

    name: str
    modules: tuple[str, ...]
    has_bias: bool

    def weight(self, read: ReadTensor) -> FloatArray:
        """[d_in, d_out], a transposed view."""
        return join([read(f"{module}.weight") for module in self.modules]).T

    def bias(self, read: ReadTensor) -> FloatArray | None:
        """[d_out] or None."""
        return join([read(f"{module}.bias") for module in self.modules]) if self.has_bias else None


def layer_linears(spec: ModelSpec, index: int) -> dict[str, LinearFacts]:
    """The four joined linears of a layer by kind ("qkv", "o", "gate_up", "down"), in order."""
    attention, mlp = f"model.layers.{index}.self_attn", f"model.layers.{index}.mlp"
    modules = {
        "qkv": (tuple(f"{attention}.{part}_proj" for part in "qkv"), spec.qkv_bias),
        "o": ((f"{attention}.o_proj",), spec.o_bias),
        "gate_up": ((f"{mlp}.gate_proj", f"{mlp}.up_proj"), spec.mlp_bias),
        "down": ((f"{mlp}.down_proj",), spec.mlp_bias),
    }
    return {
        kind: LinearFacts(name=f"layers.{index}.{kind}", modules=names, has_bias=bias)
        for kind, (names, bias) in modules.items()
    }


class Forward:
    """Runs sequences of one packed batch; ``lengths``: tokens of each, M in all."""

    def __init__(self, spec: ModelSpec, read: ReadTensor, lengths: Sequence[int]) -> None:
        self._spec = spec
        self._read = read
        ends = np.cumsum(lengths)
        self._spans = [(int(end) - size, int(end)) for end, size in zip(ends, lengths, strict=True)]
        longest = max(lengths)
        ropes = {spec.rope, spec.local_rope or spec.rope}
        self._tables = {
            rope: tuple(table.astype(np.float32) for table in rope_tables(rope, spec.head_dim, longest))
            for rope in ropes
        }

    def embed(self, token_ids: npt.NDArray[np.int64]) -> FloatArray:
        """[M] -> [M, d]."""
        rows = self._read("model.embed_tokens.weight")[token_ids]
        return rows * np.float32(self._spec.embed_scale)

    def layer(self, index: int, x: FloatArray, apply: ApplyLinear) -> FloatArray:
        """One decoder layer: residual [M, d] -> residual [M, d]."""
        spec, prefix = self._spec, f"model.layers.{index}"
        linears = layer_linears(spec, index)

        def linear(kind: str, value: FloatArray) -> FloatArray:
            facts = linears[kind]
            return apply(facts.name, value, facts.weight(self._read), facts.bias(self._read))

        normed = self._norm(x, f"{prefix}.input_layernorm")
        delta = linear("o", self._attention(index, linear("qkv", normed)))
        if spec.post_norms:
            delta = self._norm(delta, f"{prefix}.post_attention_layernorm")
        x = x + delta
        before = "pre_feedforward_layernorm" if spec.post_norms else "post_attention_layernorm"
        both = linear("gate_up", self._norm(x, f"{prefix}.{before}"))
        gate, up = both[:, : spec.intermediate_size], both[:, spec.intermediate_size :]
        delta = linear("down", activate(spec.activation, gate) * up)
        if spec.post_norms:
            delta = self._norm(delta, f"{prefix}.post_feedforward_layernorm")
        return x + delta

    def final_norm(self, x: FloatArray) -> FloatArray:
        """What the head reads."""
        return self._norm(x, "model.norm")

    def _norm(self, x: FloatArray, module: str) -> FloatArray:
        return rms_norm(x, self._read(f"{module}.weight") + np.float32(self._spec.norm_offset), self._spec.norm_eps)

    def _attention(self, index: int, qkv: FloatArray) -> FloatArray:
        """[M, (H + 2 K) D] -> [M, H D]."""
        spec = self._spec
        rope = spec.local_rope if spec.local_rope and spec.layer_kinds[index] == "sliding" else spec.rope
        window = spec.sliding_window if spec.layer_kinds[index] == "sliding" else None
        heads = qkv.reshape(len(qkv), -1, spec.head_dim).transpose(1, 0, 2)  # [H + 2 K, M, D]
        q, k, v = np.split(heads, [spec.num_heads, spec.num_heads + spec.num_kv_heads])
        if spec.qk_norm:
            attention = f"model.layers.{index}.self_attn"
            q, k = self._norm(q, f"{attention}.q_norm"), self._norm(k, f"{attention}.k_norm")
        y = np.empty((len(qkv), spec.num_heads, spec.head_dim), np.float32)
        for begin, end in self._spans:
            part = slice(begin, end)
            turned_q, turned_k = self._rotate(q[:, part], rope), self._rotate(k[:, part], rope)
            y[part] = _attend(turned_q, turned_k, v[:, part], spec.attention_scale, window).transpose(1, 0, 2)
        return y.reshape(len(qkv), -1)

    def _rotate(self, x: FloatArray, rope: RopeSpec) -> FloatArray:
        cos, sin = (table[: x.shape[1]] for table in self._tables[rope])
        first, second = np.split(x, 2, axis=-1)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def rms_norm(x: FloatArray, weight: FloatArray, eps: float) -> FloatArray:
    """Root-mean-square norm over the last axis."""
    mean = np.mean(np.square(x), axis=-1, keepdims=True, dtype=np.float32)
    return np.asarray(x / np.sqrt(mean + np.float32(eps)) * weight, np.float32)


def activate(kind: str, x: FloatArray) -> FloatArray:
    """``silu`` or ``gelu_tanh``."""
    if kind == "silu":
        with np.errstate(over="ignore"):
            return np.asarray(x / (1 + np.exp(-x)), np.float32)
    inner = np.float32(0.7978845608) * (x + np.float32(0.044715) * x**3)
    return np.asarray(0.5 * x * (1 + np.tanh(inner)), np.float32)


def _attend(q: FloatArray, k: FloatArray, v: FloatArray, scale: float, window: int | None) -> FloatArray:
    """Causal attention: q [H, t, D], k and v [K, t, D] -> [H, t, D]."""
    group = len(q) // len(k)
    size = q.shape[1]
    distance = np.arange(size)[:, None] - np.arange(size)[None, :]
    hidden = (distance < 0) if window is None else (distance < 0) | (distance >= window)
    mask = np.where(hidden, np.float32(-np.inf), np.float32(0))
    y = np.empty_like(q)
    for head in range(len(q)):
        scores = q[head] @ k[head // group].T * np.float32(scale) + mask
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        y[head] = scores @ v[head // group] / scores.sum(axis=-1, keepdims=True)
    return y


def logits_in_chunks(normed: FloatArray, head: FloatArray, tokens: int = 256) -> Iterator[FloatArray]:
    """``normed`` [M, d] times ``head`` [d, V], at most ``tokens`` rows at a time."""
    for start in range(0, len(normed), tokens):
        yield normed[start : start + tokens] @ head
