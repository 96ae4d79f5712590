"""Qwen2 and Qwen2.5 configs."""

from draftsmith.builder.spec.target import LayerKind, ModelSpec

from .config import Config
from .decoder import read_decoder, read_layer_types, read_num_layers, uniform_layers


def read_qwen2(config: Config) -> ModelSpec:
    """A Qwen2 config -> spec: Llama with biases on q, k, v and an optional window on the upper layers."""
    window, kinds = read_window(config)
    return read_decoder(
        config,
        "qwen2",
        default_head_dim=None,
        qkv_bias=True,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
        sliding_window=window,
        layer_kinds=kinds,
    )


def read_window(config: Config) -> tuple[int | None, tuple[LayerKind, ...]]:
    """Window and layer kinds: ``use_sliding_window`` switches it on, from layer ``max_window_layers`` up."""
    num_layers = read_num_layers(config)
    if not config.flag("use_sliding_window", False):
        kinds = read_layer_types(config, uniform_layers("full", num_layers))
        if "sliding" in kinds:
            raise config.error("layer_types", "full_attention alone, use_sliding_window is off", "sliding_attention")
        return None, kinds
    window = config.count("sliding_window", 4096)
    first = config.count("max_window_layers", 28, least=0)
    upper: tuple[LayerKind, ...] = tuple("sliding" if layer >= first else "full" for layer in range(num_layers))
    return window, read_layer_types(config, upper)
