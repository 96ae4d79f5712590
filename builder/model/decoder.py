"""The parts of a config that all four families share, read into ``ModelSpec`` fields."""

from draftsmith.builder.spec.target import Activation, Architecture, LayerKind, ModelSpec

from .config import Config
from .rope import read_rope

ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}
LAYER_TYPES: dict[str, LayerKind] = {"full_attention": "full", "sliding_attention": "sliding"}


def read_decoder(
    config: Config,
    architecture: Architecture,
    *,
    default_head_dim: int | None,
    qkv_bias: bool,
    o_bias: bool,
    mlp_bias: bool,
    qk_norm: bool,
    sliding_window: int | None,
    layer_kinds: tuple[LayerKind, ...],
) -> ModelSpec:
    """A spec in the style of Llama; families change single fields with ``dataclasses.replace``.

    ``default_head_dim`` None means hidden size / heads. Raises ``CheckpointError`` naming the key.
    """
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads", most=65536)
    head_dim = _head_dim(config, hidden, heads, default_head_dim)
    kv_heads = config.count("num_key_value_heads", heads, most=65536)
    if heads % kv_heads:
        raise config.error("num_key_value_heads", f"a divisor of num_attention_heads {heads}", str(kv_heads))
    max_positions = config.count("max_position_embeddings")
    return ModelSpec(
        architecture=architecture,
        hidden_size=hidden,
        intermediate_size=config.count("intermediate_size"),
        num_layers=config.count("num_hidden_layers", most=4096),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=config.count("vocab_size"),
        max_positions=max_positions,
        norm_eps=config.number("rms_norm_eps", 1e-6),
        norm_offset=0.0,
        activation=read_activation(config, "hidden_act"),
        attention_scale=head_dim**-0.5,
        qkv_bias=qkv_bias,
        o_bias=o_bias,
        mlp_bias=mlp_bias,
        qk_norm=qk_norm,
        post_norms=False,
        embed_scale=1.0,
        tied_head=config.flag("tie_word_embeddings", False),
        rope=read_rope(config, default_theta=10_000.0, max_positions=max_positions),
        local_rope=None,
        sliding_window=sliding_window if "sliding" in layer_kinds else None,
        layer_kinds=layer_kinds,
    )


def read_activation(config: Config, key: str, default: str = "silu") -> Activation:
    """The gate's activation, refused by name where unknown."""
    name = config.text(key, default)
    if name not in ACTIVATIONS:
        raise config.error(key, f"one of {', '.join(ACTIVATIONS)}", repr(name), "This activation is not supported.")
    return ACTIVATIONS[name]


def read_layer_types(config: Config, default: tuple[LayerKind, ...]) -> tuple[LayerKind, ...]:
    """``layer_types`` where given, else ``default``."""
    values = config.values.get("layer_types")
    if values is None:
        return default
    if not isinstance(values, list) or len(values) != len(default):
        raise config.error("layer_types", f"a list of {len(default)} entries", f"{values!r:.80}")
    for value in values:
        if value not in LAYER_TYPES:
            raise config.error("layer_types", f"{' or '.join(LAYER_TYPES)}", repr(value), "Not supported.")
    return tuple(LAYER_TYPES[value] for value in values)


def uniform_layers(kind: LayerKind, num_layers: int) -> tuple[LayerKind, ...]:
    """The same kind for every layer."""
    return (kind,) * num_layers


def read_num_layers(config: Config) -> int:
    """The number of layers, bounded so that a hostile config cannot ask for lists without end."""
    return config.count("num_hidden_layers", most=4096)


def _head_dim(config: Config, hidden: int, heads: int, default: int | None) -> int:
    if default is None and not config.has("head_dim") and hidden % heads:
        raise config.error("hidden_size", f"a multiple of num_attention_heads {heads}", str(hidden))
    head_dim = config.count("head_dim", default or hidden // heads, most=65536)
    if head_dim % 2:
        raise config.error("head_dim", "an even number (rotary embedding)", str(head_dim))
    return head_dim
