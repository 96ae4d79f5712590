"""Sizes of a draft: from its config, else from its tensors or the target, each default told."""

from dataclasses import dataclass

from ..errors import CheckpointError
from ..model.config import Config
from ..spec.target import ModelSpec
from .feature_layers import NUM_DEFAULT_LAYERS
from .tensor_names import DIRECT_IDS, MASK, OFFSETS
from .tensors import DraftTensors

LLAMA_MAX_POSITIONS = 2048  # of transformers' LlamaConfig, which leaves out what equals its defaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Counts of ``DraftSpec``; ``num_features`` layers are fused."""

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    target_hidden_size: int
    vocab_size: int
    head_vocab_size: int
    num_features: int
    max_positions: int


def read_sizes(
    config: Config, tensors: DraftTensors, target: ModelSpec | None, num_layers: int, choices: list[str]
) -> Sizes:
    """``num_layers``: feature layers that the file or the format names, 0 where that is not known.

    Raises ``CheckpointError`` where a size is nowhere, or two sources of it do not fit.
    """
    _refuse_eagle_2(tensors)
    _check_layers(config, tensors, choices)
    hidden = _count(config, "hidden_size", _rows(tensors, "fc.weight"), choices)
    heads = config.count("num_attention_heads", most=65536)
    head_dim = _head_dim(config, hidden, heads, choices)
    kv_rows = _rows(tensors, "k_proj.weight")
    kv_heads = _count(config, "num_key_value_heads", kv_rows // head_dim if kv_rows else None, choices)
    if heads % kv_heads:
        raise config.error("num_key_value_heads", f"a divisor of num_attention_heads {heads}", str(kv_heads))
    target_hidden, num_features = _feature_sizes(config, tensors, target, num_layers, choices)
    vocab_size = _vocab_size(config, tensors, target, choices)
    head_rows = _head_rows(config, tensors, vocab_size, choices)
    if head_rows > vocab_size:
        raise config.error("draft_vocab_size", f"at most vocab_size {vocab_size}", str(head_rows))
    if not config.has("max_position_embeddings"):
        choices.append(f"max_position_embeddings: absent, transformers' default {LLAMA_MAX_POSITIONS} was taken.")
    return Sizes(
        hidden_size=hidden,
        intermediate_size=_count(config, "intermediate_size", _rows(tensors, "gate_proj.weight"), choices),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        target_hidden_size=target_hidden,
        vocab_size=vocab_size,
        head_vocab_size=head_rows,
        num_features=num_features,
        max_positions=config.count("max_position_embeddings", LLAMA_MAX_POSITIONS),
    )


def _refuse_eagle_2(tensors: DraftTensors) -> None:
    """EAGLE and EAGLE-2 fuse the embedding with one feature, and their layer has the target's shape."""
    shape = tensors.shapes.get("fc.weight", ())
    if "hidden_norm.weight" in tensors.shapes or len(shape) != 2 or shape[1] != 2 * shape[0]:
        return
    raise CheckpointError(
        f"tensor `{tensors.stored_name('fc.weight')}`",
        expected="an EAGLE-3 draft, whose layer has a hidden_norm and reads features of several layers",
        found=f"shape {list(shape)} without one: a draft of EAGLE or EAGLE-2",
        where=str(tensors.path),
        action="This kind is not supported: use an EAGLE-3 draft of this target.",
    )


def _check_layers(config: Config, tensors: DraftTensors, choices: list[str]) -> None:
    """One layer; what ``midlayer.`` names is one whatever the config, often copied from the target's, says."""
    layers = config.count("num_hidden_layers", 1)
    if layers == 1:
        return
    if tensors.layer_prefix != "midlayer.":
        raise config.error("num_hidden_layers", "1", str(layers), "Drafts of several layers are not supported.")
    choices.append(f"num_hidden_layers: the config says {layers}, the file has one layer (midlayer), which was taken.")


def _head_rows(config: Config, tensors: DraftTensors, vocab_size: int, choices: list[str]) -> int:
    """Rows of the head: the config's, else those of the map or of the head itself, else the whole vocabulary's."""
    if config.has("draft_vocab_size"):
        return config.count("draft_vocab_size")
    for name in (OFFSETS, DIRECT_IDS, "lm_head.weight"):
        rows = _rows(tensors, name)
        if rows and rows != vocab_size:
            choices.append(f"draft_vocab_size: absent, {rows} was taken from the shape of {tensors.stored_name(name)}.")
            return rows
    return vocab_size


def _head_dim(config: Config, hidden: int, heads: int, choices: list[str]) -> int:
    if not config.has("head_dim"):
        if hidden % heads:
            raise config.error("hidden_size", f"a multiple of num_attention_heads {heads}", str(hidden))
        choices.append(f"head_dim: absent, hidden_size / num_attention_heads = {hidden // heads} was taken.")
    head_dim = config.count("head_dim", hidden // heads, most=65536)
    if head_dim % 2:
        raise config.error("head_dim", "an even number (rotary embedding)", str(head_dim))
    return head_dim


def _feature_sizes(
    config: Config, tensors: DraftTensors, target: ModelSpec | None, num_layers: int, choices: list[str]
) -> tuple[int, int]:
    """The target's width and the number of features that ``fc`` takes."""
    shape = tensors.shapes.get("fc.weight")
    if shape is None or len(shape) != 2:
        raise CheckpointError(
            "tensor `fc.weight`",
            expected="a matrix that fuses the target's features",
            found="none" if shape is None else f"shape {list(shape)}",
            where=str(tensors.path),
            action="This is no EAGLE-3 draft, or its download is incomplete.",
        )
    number = num_layers or config.count("num_aux_hidden_states", NUM_DEFAULT_LAYERS)
    if config.count("num_aux_hidden_states", number) != number:
        expected = f"{number}, the feature layers that are named"
        raise config.error("num_aux_hidden_states", expected, repr(config.values["num_aux_hidden_states"]))
    if config.has("target_hidden_size"):
        width = config.count("target_hidden_size")
    else:
        width = shape[1] // number
        choices.append(f"target_hidden_size: absent, {width} was taken from fc.weight ({shape[1]} inputs / {number}).")
    if shape[1] != number * width or not width:
        expected = f"{number} features of {width} inputs each, {number * width} together"
        raise CheckpointError(
            f"tensor `{tensors.stored_name('fc.weight')}`",
            expected=expected,
            found=f"shape {list(shape)}",
            where=str(tensors.path),
            action="The draft reads another number of target layers, or its target has another width"
            + (f" (the given one has {target.hidden_size})." if target else "."),
        )
    return width, number


def _vocab_size(config: Config, tensors: DraftTensors, target: ModelSpec | None, choices: list[str]) -> int:
    if config.has("vocab_size"):
        return config.count("vocab_size")
    for name in (MASK, "embed_tokens.weight"):
        rows = _rows(tensors, name)
        if rows:
            choices.append(f"vocab_size: absent, {rows} was taken from the shape of {name}.")
            return rows
    if target is not None:
        choices.append(f"vocab_size: absent, the target's {target.vocab_size} was taken.")
        return target.vocab_size
    action = "Name the target with --target."
    raise config.error("vocab_size", "the target's vocabulary size here or in a tensor", "none", action)


def _count(config: Config, key: str, stored: int | None, choices: list[str]) -> int:
    """The config's number, else what the tensors show."""
    if not config.has(key) and stored:
        choices.append(f"{key}: absent, {stored} was taken from the tensors' shapes.")
    return config.count(key, stored or None)


def _rows(tensors: DraftTensors, name: str) -> int | None:
    shape = tensors.shapes.get(name)
    return shape[0] if shape else None
