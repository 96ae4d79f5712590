"""A decoder in NumPy, one layer at a time, forwards and backwards: shows what enters every joined linear.

Calibration must see each linear's input while one layer's weights are in memory; a session of the whole model would
hold all of them. Tests compare it with the graph that is served and with torch's gradients.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..graph.layers import join
from ..graph.rope import rope_tables
from ..spec.target import ModelSpec, RopeSpec
from .decoder_math import (
    activate,
    activation_gradient,
    attend,
    attend_gradient,
    rms_norm,
    rms_norm_gradient,
    rotate,
)

FloatArray = npt.NDArray[np.float32]
TokenIds = npt.NDArray[np.int64]
ReadTensor = Callable[[str], FloatArray]
"""Reads one checkpoint tensor by its Hugging Face name, as float32."""
KINDS = ("qkv", "o", "gate_up", "down")


class ApplyLinear(Protocol):
    """Computes one joined linear and may look at, or change, what goes in and out."""

    def __call__(self, name: str, x: FloatArray, weight: FloatArray, bias: FloatArray | None) -> FloatArray:
        """``x`` [M, d_in] times ``weight`` [d_in, d_out] plus ``bias``; ``name``: "layers.3.qkv"."""


def multiply(name: str, x: FloatArray, weight: FloatArray, bias: FloatArray | None) -> FloatArray:  # noqa: ARG001
    """The plain product."""
    y = x @ weight
    return y if bias is None else y + bias


@dataclass(frozen=True, slots=True)
class LinearValues:
    """What went into and came out of one joined linear: [M, d_in], [M, d_out]."""

    x: FloatArray
    y: FloatArray


@dataclass(frozen=True, slots=True)
class LinearGradients:
    """Gradients with respect to what went in and what came out."""

    x: FloatArray
    y: FloatArray


class Layer:
    """One layer's float weights: joined linears [d_in, d_out] by kind, biases, and norms with their offset added."""

    def __init__(self, spec: ModelSpec, read: ReadTensor, index: int) -> None:
        self.index = index
        prefix = f"model.layers.{index}"
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        modules = {
            "qkv": ([f"{attention}.{part}_proj" for part in "qkv"], spec.qkv_bias),
            "o": ([f"{attention}.o_proj"], spec.o_bias),
            "gate_up": ([f"{mlp}.gate_proj", f"{mlp}.up_proj"], spec.mlp_bias),
            "down": ([f"{mlp}.down_proj"], spec.mlp_bias),
        }
        self.weights = {kind: join([read(f"{m}.weight") for m in names]).T for kind, (names, _) in modules.items()}
        self.biases = {kind: join([read(f"{m}.bias") for m in names]) for kind, (names, has) in modules.items() if has}
        offset = np.float32(spec.norm_offset)

        def norm(module: str) -> FloatArray:
            return read(f"{module}.weight") + offset

        self.input_norm = norm(f"{prefix}.input_layernorm")
        self.mlp_norm = norm(f"{prefix}.{'pre_feedforward' if spec.post_norms else 'post_attention'}_layernorm")
        self.post_norms = (
            [norm(f"{prefix}.post_{part}_layernorm") for part in ("attention", "feedforward")]
            if spec.post_norms
            else []
        )
        self.head_norms = [norm(f"{attention}.{part}_norm") for part in "qk"] if spec.qk_norm else []


class Decoder:
    """Runs sequences packed one behind the other; ``lengths``: tokens of each, M in all."""

    def __init__(self, spec: ModelSpec, lengths: Sequence[int]) -> None:
        self._spec = spec
        ends = np.cumsum(lengths)
        self._spans = [slice(int(end) - size, int(end)) for end, size in zip(ends, lengths, strict=True)]
        self._tables = {
            rope: tuple(table.astype(np.float32) for table in rope_tables(rope, spec.head_dim, max(lengths)))
            for rope in {spec.rope, spec.local_rope or spec.rope}
        }

    def forward(
        self, layer: Layer, x: FloatArray, apply: ApplyLinear | None = None
    ) -> tuple[FloatArray, dict[str, LinearValues]]:
        """Residual [M, d] -> (residual [M, d], values by kind); ``apply`` replaces the plain products."""
        spec = self._spec
        values: dict[str, LinearValues] = {}

        def linear(kind: str, value: FloatArray) -> FloatArray:
            name = f"layers.{layer.index}.{kind}"
            y = (apply or multiply)(name, value, layer.weights[kind], layer.biases.get(kind))
            values[kind] = LinearValues(value, y)
            return y

        qkv = linear("qkv", rms_norm(x, layer.input_norm, spec.norm_eps))
        middle = x + self._post_norm(layer, 0, linear("o", self._attention(layer, qkv)))
        gate, up = np.split(linear("gate_up", rms_norm(middle, layer.mlp_norm, spec.norm_eps)), 2, axis=1)
        delta = linear("down", activate(spec.activation, gate) * up)
        return middle + self._post_norm(layer, 1, delta), values

    def backward(
        self, layer: Layer, x: FloatArray, values: dict[str, LinearValues], grad: FloatArray
    ) -> tuple[FloatArray, dict[str, LinearGradients]]:
        """From the gradient of a layer's result to that of its input ``x`` and those of its linears by kind."""
        spec = self._spec
        grads: dict[str, LinearGradients] = {}

        def linear(kind: str, grad_y: FloatArray) -> FloatArray:
            grads[kind] = LinearGradients(grad_y @ layer.weights[kind].T, grad_y)
            return grads[kind].x

        grad_hidden = linear("down", self._post_norm_gradient(layer, 1, values["down"].y, grad))
        gate, up = np.split(values["gate_up"].y, 2, axis=1)
        grad_gate = grad_hidden * up * activation_gradient(spec.activation, gate)
        both = np.concatenate([grad_gate, grad_hidden * activate(spec.activation, gate)], axis=1)
        middle = x + self._post_norm(layer, 0, values["o"].y)
        grad = grad + rms_norm_gradient(middle, layer.mlp_norm, spec.norm_eps, linear("gate_up", both))
        grad_heads = linear("o", self._post_norm_gradient(layer, 0, values["o"].y, grad))
        grad_qkv = self._attention_gradient(layer, values["qkv"].y, grad_heads)
        return grad + rms_norm_gradient(x, layer.input_norm, spec.norm_eps, linear("qkv", grad_qkv)), grads

    def _post_norm(self, layer: Layer, which: int, x: FloatArray) -> FloatArray:
        return rms_norm(x, layer.post_norms[which], self._spec.norm_eps) if layer.post_norms else x

    def _post_norm_gradient(self, layer: Layer, which: int, x: FloatArray, grad: FloatArray) -> FloatArray:
        if not layer.post_norms:
            return grad
        return rms_norm_gradient(x, layer.post_norms[which], self._spec.norm_eps, grad)

    def _attention(self, layer: Layer, qkv: FloatArray) -> FloatArray:
        """[M, (H + 2 K) D] -> [M, H D]."""
        y = np.empty((len(qkv), self._spec.num_heads, self._spec.head_dim), np.float32)
        for span in self._spans:
            q, k, v = self._heads(layer, qkv[span])
            y[span] = attend(q, k, v, self._spec.attention_scale, self._window(layer))[0].transpose(1, 0, 2)
        return y.reshape(len(qkv), -1)

    def _attention_gradient(self, layer: Layer, qkv: FloatArray, grad: FloatArray) -> FloatArray:
        """From [M, H D] to [M, (H + 2 K) D]."""
        spec, result = self._spec, np.empty_like(qkv)
        rope = self._rope(layer)
        for span in self._spans:
            q, k, v = self._heads(layer, qkv[span])
            weights = attend(q, k, v, spec.attention_scale, self._window(layer))[1]
            size = len(qkv[span])
            heads = grad[span].reshape(size, spec.num_heads, spec.head_dim).transpose(1, 0, 2)
            grad_q, grad_k, grad_v = attend_gradient(q, k, v, spec.attention_scale, weights=weights, grad=heads)
            cos, sin = (table[:size] for table in self._tables[rope])
            parts = [rotate(part, cos, -sin) for part in (grad_q, grad_k)]
            if layer.head_norms:
                raw = self._split(qkv[span])
                parts = [
                    rms_norm_gradient(x, weight, spec.norm_eps, part)
                    for x, weight, part in zip(raw, layer.head_norms, parts, strict=False)
                ]
            result[span] = np.concatenate([*parts, grad_v]).transpose(1, 0, 2).reshape(size, -1)
        return result

    def _heads(self, layer: Layer, qkv: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Normed and rotated q [H, t, D], k and v [K, t, D] of one sequence."""
        q, k, v = self._split(qkv)
        if layer.head_norms:
            q, k = (rms_norm(x, w, self._spec.norm_eps) for x, w in zip((q, k), layer.head_norms, strict=True))
        cos, sin = (table[: len(qkv)] for table in self._tables[self._rope(layer)])
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def _split(self, qkv: FloatArray) -> list[FloatArray]:
        heads = qkv.reshape(len(qkv), -1, self._spec.head_dim).transpose(1, 0, 2)
        return np.split(heads, [self._spec.num_heads, self._spec.num_heads + self._spec.num_kv_heads])

    def _rope(self, layer: Layer) -> RopeSpec:
        local = self._spec.local_rope
        return local if local is not None and self._is_sliding(layer) else self._spec.rope

    def _window(self, layer: Layer) -> int | None:
        return self._spec.sliding_window if self._is_sliding(layer) else None

    def _is_sliding(self, layer: Layer) -> bool:
        return self._spec.layer_kinds[layer.index] == "sliding"
