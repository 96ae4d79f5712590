"""A draft's config as one flat set of keys: nested parts merged, keys that nobody knows refused by name."""

from collections.abc import Mapping
from typing import Any

from ..errors import CheckpointError
from ..model.config import NEUTRAL_VALUES, Config
from .checkpoint import DraftFormat

# Read by ``read_spec``, ``feature_layers``, ``ranking_tensors`` or ``open``.
READ_KEYS = {
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "rms_norm_eps",
    "attention_bias",
    "mlp_bias",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "original_max_position_embeddings",
    "max_position_embeddings",
    "tie_word_embeddings",
    "vocab_size",
    "draft_vocab_size",
    "target_hidden_size",
    "norm_before_residual",
    "norm_before_fc",
    "fc_norm",
    "norm_output",
    "use_last_layernorm",
    "use_aux_hidden_state",
    "eagle_aux_hidden_state_layer_ids",
    "eagle3_layers_to_capture",
    "num_aux_hidden_states",
    "sliding_window",
    "use_sliding_window",
    "layer_types",
    "vocabulary_speculator",
    "draftsmith",
    "model_type",
}
# Must have these values where they are there: another one is another computation.
FIXED_VALUES: Mapping[str, tuple[Any, ...]] = {
    "use_input_layernorm_in_first_layer": (None, True),
    "use_mtp_layernorm": (None, False),
    "parallel_draft_step": (None, 1),
    "parallel_draft_heads_num_layers": (None, 0, 1),
    "eh_proj_before_attn": (None, False),
    "parallel_drafting": (None, False),
    "speculators_model_type": (None, "eagle3"),
    "eagle_decoder_type": (None, "llama"),
    "next_layer_regular": (None, True, False),  # of layers behind the first
}
# Names, training and sampling settings (older transformers wrote all of them): nothing that a draft step computes.
HARMLESS_KEYS = {
    "_name_or_path",
    "attention_dropout",
    "architectures",
    "auto_map",
    "bos_token_id",
    "dtype",
    "eagle_config",
    "embed_requires_grad",
    "eos_token_id",
    "has_lm_head",
    "has_no_defaults_at_init",
    "initializer_range",
    "max_window_layers",
    "modelopt_version",
    "pad_token_id",
    "pretraining_tp",
    "producer",
    "speculators_config",
    "speculators_version",
    "target_model_type",
    "target_vocab_size",
    "torch_dtype",
    "transformer_layer_config",
    "transformers_version",
    "use_cache",
    "_attn_implementation",
    "attn_implementation",
    "unk_token_id",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "id2label",
    "label2id",
    "problem_type",
    "chunk_size_feed_forward",
    "modal_type",
    "_attn_implementation_autoset",
    "name_or_path",
    "task_specific_params",
    "torchscript",
    "use_bfloat16",
    "is_composition",
    "pruned_heads",
    "tokenizer_class",
    "prefix",
    "min_length",
    "max_length",
    "do_sample",
    "early_stopping",
    "num_beams",
    "num_beam_groups",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "num_return_sequences",
    "output_scores",
    "return_dict_in_generate",
    "remove_invalid_values",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "cross_attention_hidden_size",
}


def flatten_config(values: Mapping[str, Any], format_name: DraftFormat, where: str) -> Config:
    """All settings of a draft under one level.

    speculators' ``transformer_layer_config`` and ``eagle_config`` of the others are merged in; a key that lies in two
    places with two values raises ``CheckpointError``, as do keys that are not known here.
    """
    config = Config(values, where)
    flat: dict[str, Any] = {}
    parts = [config]
    if format_name == "speculators":
        layer = config.section("transformer_layer_config")
        if layer is None:
            raise config.error("transformer_layer_config", "the draft layer's settings", "none")
        parts.insert(0, layer)
    nested = config.section("eagle_config")
    if nested is not None:
        parts.append(nested)
    for part in parts:
        for key, value in part.values.items():
            if key in READ_KEYS and flat.get(key) is not None and value is not None and flat[key] != value:
                raise part.error(key, f"the same value as before, {flat[key]!r:.60}", f"{value!r:.60}")
            if value is not None or key not in flat:
                flat[key] = value
    merged = Config(flat, where)
    _refuse_unknown(merged)
    return merged


def _refuse_unknown(config: Config) -> None:
    config.refuse_unsupported()
    for key, allowed in FIXED_VALUES.items():
        value = config.values.get(key)
        if not any(type(value) is type(a) and value == a for a in allowed):
            raise config.error(key, " or ".join(repr(a) for a in allowed[1:]), f"{value!r:.80}", "Not supported.")
    known = READ_KEYS | HARMLESS_KEYS | set(FIXED_VALUES) | set(NEUTRAL_VALUES)
    for key, value in config.values.items():
        if value is not None and key not in known:
            raise CheckpointError(
                f"config key `{key}`",
                expected="a key of an EAGLE-3 draft that is known to draftsmith",
                found=f"{value!r:.80}",
                where=config.where,
                action="It may change what the draft computes. Remove it from config.json if you know it does not.",
            )
