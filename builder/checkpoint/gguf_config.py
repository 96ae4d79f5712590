"""GGUF metadata -> the Hugging Face config that says the same, so that one reader a family serves both formats."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from draftsmith.builder.errors import CheckpointError

from .gguf_header import GgufHeader

MODEL_TYPES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3_text"}
# Keys under the architecture's name that are read here; any other one could change the maths and is refused.
READ_KEYS = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
}
# Say nothing about the maths of these families.
HARMLESS_KEYS = {"vocab_size", "rope.scaling.finetuned", "tensor_data_layout", "pooling_type", "mm.tokens_per_image"}
# Must have this value where present.
NEUTRAL_KEYS: Mapping[str, Any] = {
    "attention.causal": True,
    "expert_count": 0,
    "expert_used_count": 0,
    "attn_logit_softcapping": 0.0,
    "final_logit_softcapping": 0.0,
    "attention.key_length_swa": None,
    "attention.value_length_swa": None,
    "rope.dimension_count_swa": None,
    "rope.scaling.yarn_ext_factor": 1.0,
    "use_parallel_residual": False,
    "embedding_scale": 0.0,
    "residual_scale": 0.0,
    "logit_scale": 0.0,
    "attention.scale": 0.0,
}


def hf_config(header: GgufHeader, where: str) -> dict[str, Any]:
    """The config of the model in the file; ``CheckpointError`` for what is missing, odd or not supported."""
    keys = _Keys(header, where)
    keys.refuse_unknown()
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None:
        raise CheckpointError("tensor `token_embd.weight`", expected="it in the file", found="none", where=where)
    head_dim = keys.number("attention.key_length", None)
    if head_dim is None:
        head_dim = keys.number("embedding_length") // max(1, keys.number("attention.head_count"))
    for key in ("attention.value_length", "rope.dimension_count"):
        if (found := keys.number(key, head_dim)) != head_dim:
            raise keys.error(key, f"the head size {head_dim}", str(found), "Not supported.")
    values = {
        "model_type": MODEL_TYPES[keys.architecture],
        "hidden_size": keys.number("embedding_length"),
        "intermediate_size": keys.number("feed_forward_length"),
        "num_hidden_layers": keys.number("block_count"),
        "num_attention_heads": keys.number("attention.head_count"),
        "num_key_value_heads": keys.number("attention.head_count_kv", keys.number("attention.head_count")),
        "head_dim": head_dim,
        "vocab_size": embedding.shape[0],
        "max_position_embeddings": keys.number("context_length"),
        "rms_norm_eps": _short_float(keys.number("attention.layer_norm_rms_epsilon")),
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "attention_bias": "blk.0.attn_q.bias" in header.tensors,
        "mlp_bias": "blk.0.ffn_gate.bias" in header.tensors,
    }
    return values | _window(keys, values) | _rope(keys)


def _window(keys: "_Keys", values: Mapping[str, Any]) -> dict[str, Any]:
    window = keys.number("attention.sliding_window", None)
    if keys.architecture == "gemma3":
        pattern = keys.number("attention.sliding_window_pattern", 6)
        heads = max(1, values["num_attention_heads"])
        scalar = values["hidden_size"] // heads if values["num_hidden_layers"] == 62 else None
        if window is None:
            raise keys.error("attention.sliding_window", "a number", "none")
        return {
            "sliding_window": window,
            "sliding_window_pattern": pattern,
            # the 27B model alone scales by hidden size / heads (llama.cpp, llama-model.cpp)
            "query_pre_attn_scalar": scalar or values["head_dim"],
        }
    if window is None:
        return {}
    if keys.architecture != "llama":
        return {"use_sliding_window": True, "sliding_window": window, "max_window_layers": 0}
    return {"model_type": "mistral", "sliding_window": window}


def _rope(keys: "_Keys") -> dict[str, Any]:
    values: dict[str, Any] = {"rope_theta": keys.number("rope.freq_base", 10_000.0)}
    if keys.architecture == "gemma3":
        values["rope_theta"] = keys.number("rope.freq_base", 1_000_000.0)
        values["rope_local_base_freq"] = keys.number("rope.freq_base_swa", 10_000.0)
    kind = keys.text("rope.scaling.type", "none")
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", None))
    if kind == "none" and factor in (None, 0, 1):
        return values
    if kind in ("none", "linear"):
        return (
            values if factor in (None, 0, 1) else values | {"rope_scaling": {"rope_type": "linear", "factor": factor}}
        )
    if factor is None or not 0 < factor < 1e6:
        raise keys.error("rope.scaling.factor", "a number above 0", repr(factor))
    scaling: dict[str, Any] = {"rope_type": kind, "factor": factor}
    names = {
        "rope.scaling.original_context_length": "original_max_position_embeddings",
        "rope.scaling.yarn_beta_fast": "beta_fast",
        "rope.scaling.yarn_beta_slow": "beta_slow",
    }
    scaling |= {new: value for key, new in names.items() if (value := keys.number(key, None)) is not None}
    attention = keys.number("rope.scaling.attn_factor", None)
    if attention not in (None, 1.0):  # ggml multiplies it with yarn's own
        scaling["attention_factor"] = attention * (1.0 + 0.1 * math.log(factor))
    return values | {"rope_scaling": scaling}


class _Keys:
    """Metadata under the architecture's name."""

    def __init__(self, header: GgufHeader, where: str) -> None:
        self.where = where
        self.metadata = header.metadata
        architecture = header.metadata.get("general.architecture")
        if architecture not in MODEL_TYPES:
            raise CheckpointError(
                "general.architecture",
                expected=f"one of {', '.join(MODEL_TYPES)}",
                found=repr(architecture),
                where=where,
                action="This architecture is not supported.",
            )
        self.architecture: str = architecture

    def refuse_unknown(self) -> None:
        for key, value in self.metadata.items():
            short = key.removeprefix(f"{self.architecture}.")
            if short == key or short in READ_KEYS or short in HARMLESS_KEYS:
                continue
            if short not in NEUTRAL_KEYS:
                raise self.error(short, "no setting that is not known", f"{value!r:.80}", "Not supported.")
            neutral = NEUTRAL_KEYS[short]
            if neutral is None:
                neutral = self.metadata.get(f"{self.architecture}.{short.removesuffix('_swa')}")
            if value != neutral:
                raise self.error(short, f"none, or {neutral}", f"{value!r:.80}", "This feature is not supported.")

    def number(self, key: str, *default: Any) -> Any:
        value = self.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, np.ndarray) and value.size and (value == value.flat[0]).all():
            value = value.flat[0].item()  # the same for every layer
        if value is None and default:
            return default[0]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, "one number", f"{value!r:.80}")
        return value

    def text(self, key: str, default: str) -> str:
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        if not isinstance(value, str):
            raise self.error(key, "a text", f"{value!r:.80}")
        return value

    def error(self, key: str, expected: str, found: str, action: str = "") -> CheckpointError:
        return CheckpointError(
            f"GGUF key `{self.architecture}.{key}`", expected=expected, found=found, where=self.where, action=action
        )


def _short_float(value: float) -> float:
    """The shortest decimal of a float32 (9.999999747e-06 was written as 1e-05)."""
    return float(str(np.float32(value)))
