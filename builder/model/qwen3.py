"""Qwen3 configs (dense)."""

from draftsmith.builder.spec.target import ModelSpec

from .config import Config
from .decoder import read_decoder
from .qwen2 import read_window


def read_qwen3(config: Config) -> ModelSpec:
    """A Qwen3 config -> spec: RMS norms on the heads of q and k; ``head_dim`` is 128 where absent."""
    window, kinds = read_window(config)
    bias = config.flag("attention_bias", False)
    return read_decoder(
        config,
        "qwen3",
        default_head_dim=128,
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=False,
        qk_norm=True,
        sliding_window=window,
        layer_kinds=kinds,
    )
