"""A draft's config and tensor shapes -> ``DraftSpec``: every switch from the file, every default told."""

from ..model.config import Config
from ..model.decoder import read_activation, read_layer_types
from ..model.rope import read_rope
from ..spec.draft import DraftSpec
from ..spec.target import ModelSpec
from .feature_layers import read_feature_layers
from .formats import FormatFacts
from .sizes import read_sizes
from .tensors import DraftTensors

MODEL_TYPES = ("llama", "qwen2", "qwen3", "mistral")
NORM_OUTPUT_WORDS = {"feeds back": "the normed state is fed back", "head input": "the head's input is normed"}
DEFAULT_THETA, DEFAULT_EPS = 10_000.0, 1e-6  # transformers' LlamaConfig


def read_draft_spec(
    config: Config, facts: FormatFacts, tensors: DraftTensors, target: ModelSpec | None, choices: list[str]
) -> DraftSpec:
    """The spec; ``feature_layers`` is () where only a target could tell. ``choices`` gets a sentence for each default.

    Raises ``CheckpointError`` naming the key that is wrong, missing or not supported.
    """
    model_type = config.text("model_type", "llama")
    if model_type not in MODEL_TYPES:
        raise config.error("model_type", f"one of {', '.join(MODEL_TYPES)}", repr(model_type), "Not supported.")
    layers = read_feature_layers(config, facts, target, choices)
    sizes = read_sizes(config, tensors, target, len(layers), choices)
    _note_default(config, "rms_norm_eps", DEFAULT_EPS, choices)
    if not config.has("rope_theta") and not _has_nested_theta(config):
        choices.append(f"rope_theta: absent, transformers' default {DEFAULT_THETA:g} was taken.")
    if not config.has("hidden_act"):
        choices.append("hidden_act: absent, silu was taken.")
    feeds_back, norms_head = _read_norm_output(config, facts, choices)
    norm_before_fc, fc_norm = _read_feature_norms(config, tensors, choices)
    own_head = "lm_head.weight" in tensors.shapes or _is_tied(config, tensors, choices)
    own_embedding = "embed_tokens.weight" in tensors.shapes
    _note_borrowed(own_embedding, own_head, sizes.head_vocab_size < sizes.vocab_size, choices)
    return DraftSpec(
        hidden_size=sizes.hidden_size,
        intermediate_size=sizes.intermediate_size,
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        norm_eps=config.number("rms_norm_eps", DEFAULT_EPS),
        activation=read_activation(config, "hidden_act"),
        attention_scale=sizes.head_dim**-0.5,
        qkv_bias=_read_bias(config, "attention_bias", tensors, "q_proj.bias", choices),
        o_bias=_read_bias(config, "attention_bias", tensors, "o_proj.bias", choices),
        mlp_bias=_read_bias(config, "mlp_bias", tensors, "gate_proj.bias", choices),
        rope=read_rope(config, default_theta=DEFAULT_THETA, max_positions=sizes.max_positions),
        max_positions=sizes.max_positions,
        target_hidden_size=sizes.target_hidden_size,
        vocab_size=sizes.vocab_size,
        head_vocab_size=sizes.head_vocab_size,
        feature_layers=layers,
        fc_bias="fc.bias" in tensors.shapes,
        norm_before_fc=norm_before_fc,
        fc_norm=fc_norm,
        norm_before_residual=_read_residual(config, facts, choices),
        feeds_back_normed=feeds_back,
        norms_head_input=norms_head,
        embed_scale=_read_embed_scale(config, target, choices),
        own_embedding=own_embedding,
        own_head=own_head,
        window=_read_window(config),
    )


def _read_residual(config: Config, facts: FormatFacts, choices: list[str]) -> bool:
    if not config.has("norm_before_residual"):
        choices.append(f"norm_before_residual: absent, false was taken ({facts.residual_reason}).")
    return config.flag("norm_before_residual", False)


def _read_norm_output(config: Config, facts: FormatFacts, choices: list[str]) -> tuple[bool, bool]:
    """Whether the normed state is fed back, and whether the head reads it."""
    norms_head = config.flag("use_last_layernorm", True)
    section = config.section("draftsmith")
    meaning = facts.norm_output if section is None else section.text("norm_output", facts.norm_output)
    if section is not None and meaning not in NORM_OUTPUT_WORDS:
        raise section.error("norm_output", " or ".join(map(repr, NORM_OUTPUT_WORDS)), repr(meaning))
    if config.has("norm_output") and facts.norm_output_doubt:
        given = str(config.flag("norm_output", False)).lower()
        taken = f'norm_output: {given} was taken as "{NORM_OUTPUT_WORDS[meaning]}"'
        doubt = "config.json says so" if section is not None and section.has("norm_output") else facts.norm_output_doubt
        choices.append(f"{taken} ({doubt}).")
    if meaning == "feeds back":
        return config.flag("norm_output", False), norms_head
    return False, config.flag("norm_output", norms_head)


def _read_feature_norms(config: Config, tensors: DraftTensors, choices: list[str]) -> tuple[bool, bool]:
    """``norm_before_fc`` and ``fc_norm``: an absent key is read from the tensors, both at once are refused."""
    flags = []
    for key, tensor in (("norm_before_fc", "fc_input_norm.weight"), ("fc_norm", "fc_norm.0.weight")):
        stored = tensor in tensors.shapes
        if not config.has(key) and stored:
            choices.append(f"{key}: absent, true was taken because the file has {tensors.stored_name(tensor)}.")
        flags.append(config.flag(key, stored))
    if all(flags):
        raise config.error(
            "fc_norm",
            "at most one of norm_before_fc and fc_norm",
            "both",
            "They exclude one another: one norm over all features, or one for each.",
        )
    return flags[0], flags[1]


def _read_bias(config: Config, key: str, tensors: DraftTensors, tensor: str, choices: list[str]) -> bool:
    stored = tensor in tensors.shapes
    if not config.has(key) and stored:
        choices.append(f"{key}: absent, true was taken because the file has {tensors.stored_name(tensor)}.")
    return config.flag(key, stored)


def _is_tied(config: Config, tensors: DraftTensors, choices: list[str]) -> bool:
    """A head that is the draft's own embedding: only where the file has that and its config says so."""
    tied = config.flag("tie_word_embeddings", False) and "embed_tokens.weight" in tensors.shapes
    if tied:
        choices.append("lm_head: tied to the draft's own embedding (tie_word_embeddings).")
    return tied


def _note_borrowed(own_embedding: bool, own_head: bool, is_subset: bool, choices: list[str]) -> None:
    if not own_embedding:
        choices.append("embed_tokens: not in the file, the target's is used.")
    if not own_head:
        rows = "the rows of the draft's tokens are gathered from the target's" if is_subset else "the target's is used"
        choices.append(f"lm_head: not in the file, {rows}.")


def _read_embed_scale(config: Config, target: ModelSpec | None, choices: list[str]) -> float:
    section = config.section("draftsmith")
    if section is not None and section.has("embed_scale"):
        return section.number("embed_scale")
    if target is not None and target.embed_scale != 1.0:
        choices.append(
            f"embed_scale: 1; the target multiplies its embeddings by {target.embed_scale:g}, drafts of this format do "
            "not."
        )
    return 1.0


def _read_window(config: Config) -> int | None:
    """The window of the draft's one layer, where its ``layer_types`` asks for it."""
    kinds = read_layer_types(config, ("full",))
    if kinds == ("sliding",):
        return config.count("sliding_window")
    if config.has("sliding_window") and "layer_types" not in config.values and config.flag("use_sliding_window", True):
        raise config.error(
            "sliding_window",
            "layer_types beside it, or null",
            str(config.values["sliding_window"]),
            "Whether the draft's layer slides cannot be told.",
        )
    return None


def _note_default(config: Config, key: str, default: float, choices: list[str]) -> None:
    if not config.has(key):
        choices.append(f"{key}: absent, transformers' default {default:g} was taken.")


def _has_nested_theta(config: Config) -> bool:
    return any(
        section is not None and section.has("rope_theta")
        for section in (config.section("rope_parameters"), config.section("rope_scaling"))
    )
