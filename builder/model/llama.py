"""Llama 2, 3.x, SmolLM2 and Mistral configs."""

from draftsmith.builder.spec.target import LayerKind, ModelSpec

from .config import Config
from .decoder import read_decoder, read_layer_types, read_num_layers, uniform_layers


def read_llama(config: Config) -> ModelSpec:
    """A Llama config -> spec; it has no sliding window."""
    bias = config.flag("attention_bias", False)
    return read_decoder(
        config,
        "llama",
        default_head_dim=None,
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=config.flag("mlp_bias", False),
        qk_norm=False,
        sliding_window=None,
        layer_kinds=uniform_layers("full", read_num_layers(config)),
    )


def read_mistral(config: Config) -> ModelSpec:
    """A Mistral config -> spec: Llama, with the window of v0.1 on every layer where it is set.

    An absent key means 4096 in transformers' ``MistralConfig``, a null none; absent is refused rather than guessed.
    """
    if "sliding_window" not in config.values:
        raise config.error("sliding_window", "a number, or null for none", "no such key")
    window = config.count("sliding_window") if config.has("sliding_window") else None
    kind: LayerKind = "sliding" if window else "full"
    return read_decoder(
        config,
        "llama",
        default_head_dim=None,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
        sliding_window=window,
        layer_kinds=read_layer_types(config, uniform_layers(kind, read_num_layers(config))),
    )
