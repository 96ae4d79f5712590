"""The one layer of an EAGLE-3 draft, as ``LayerWriter`` sees it: a spec of a target's kind, tensors by their names."""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from ..spec.draft import DraftSpec
from ..spec.target import ModelSpec

ReadTensor = Callable[[str], npt.NDArray[np.float32]]
_PREFIX = "model.layers.0."
_NAMES: Mapping[str, str] = {
    **{f"{_PREFIX}self_attn.{part}_proj": f"{part}_proj" for part in "qkvo"},
    **{f"{_PREFIX}mlp.{part}_proj": f"{part}_proj" for part in ("gate", "up", "down")},
    f"{_PREFIX}post_attention_layernorm": "mlp_norm",
}
"""A target's names without .weight or .bias -> ours (``draft/checkpoint``)."""


def as_layer_spec(spec: DraftSpec) -> ModelSpec:
    """One layer of the draft's sizes; the vocabulary, the norm before the layer and its width are not the layer's."""
    return ModelSpec(
        architecture="llama",
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_layers=1,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        vocab_size=spec.vocab_size,
        max_positions=spec.max_positions,
        norm_eps=spec.norm_eps,
        norm_offset=0.0,
        activation=spec.activation,
        attention_scale=spec.attention_scale,
        qkv_bias=spec.qkv_bias,
        o_bias=spec.o_bias,
        mlp_bias=spec.mlp_bias,
        qk_norm=False,
        post_norms=False,
        embed_scale=spec.embed_scale,
        tied_head=False,
        rope=spec.rope,
        local_rope=None,
        sliding_window=spec.window,
        layer_kinds=("full" if spec.window is None else "sliding",),
    )


def read_as_layer(read: ReadTensor) -> ReadTensor:
    """``read`` of a draft's tensors, for the names that ``LayerWriter`` asks for; our own names pass as they are."""

    def read_tensor(name: str) -> npt.NDArray[np.float32]:
        stem, _, kind = name.rpartition(".")
        return read(f"{_NAMES.get(stem, stem)}.{kind}")

    return read_tensor
