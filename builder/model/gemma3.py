"""Gemma 3 configs: text models, and the text part of the multimodal ones."""

from dataclasses import replace

from draftsmith.builder.spec.target import LayerKind, ModelSpec, RopeSpec

from .config import Config
from .decoder import read_activation, read_decoder, read_layer_types, read_num_layers
from .rope import read_rope, rope_from_section


def read_gemma3(config: Config) -> ModelSpec:
    """A Gemma 3 text config -> spec.

    Norms multiply by 1 + weight, four a layer; embeddings are scaled by sqrt(hidden); every sixth layer is full and has
    its own rope, the others slide. Source: transformers ``Gemma3TextConfig`` and ``modeling_gemma3.py``.
    """
    num_layers = read_num_layers(config)
    pattern = config.count("sliding_window_pattern", config.count("_sliding_window_pattern", 6))
    kinds: tuple[LayerKind, ...] = tuple("sliding" if (i + 1) % pattern else "full" for i in range(num_layers))
    kinds = read_layer_types(config, kinds)
    bias = config.flag("attention_bias", False)
    window = config.count("sliding_window", 4096)
    text = Config({"tie_word_embeddings": True, "head_dim": 256, **_without_rope(config)}, config.where)
    spec = read_decoder(
        text,
        "gemma3",
        default_head_dim=256,
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=False,
        qk_norm=True,
        sliding_window=window,
        layer_kinds=kinds,
    )
    return replace(
        spec,
        norm_offset=1.0,
        activation=read_activation(config, "hidden_activation", "gelu_pytorch_tanh"),
        attention_scale=config.number("query_pre_attn_scalar", 256.0) ** -0.5,
        post_norms=True,
        embed_scale=spec.hidden_size**0.5,
        rope=read_rope(
            config, default_theta=1_000_000.0, max_positions=spec.max_positions, layer_type="full_attention"
        ),
        local_rope=_local_rope(config, spec.max_positions) if "sliding" in kinds else None,
    )


def _without_rope(config: Config) -> dict[str, object]:
    dropped = ("rope_scaling", "rope_parameters", "rope_theta", "hidden_act")
    return {key: value for key, value in config.values.items() if key not in dropped and value is not None}


def _local_rope(config: Config, max_positions: int) -> RopeSpec:
    theta = config.number("rope_local_base_freq", 10_000.0)
    section = config.section("rope_parameters")
    section = section.section("sliding_attention") if section is not None else None
    if section is None:
        return RopeSpec(kind="default", theta=theta)
    return rope_from_section(section, config, theta=theta, max_positions=max_positions)
