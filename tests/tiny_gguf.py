"""Tiny GGUF files of the same seeded weights as ``tiny_models``, written through the ``gguf`` package's own writer."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from tests.tiny_models import tiny_config, tiny_weights
from tests.tiny_tokenizer import CHAT_TEMPLATE, MERGES, SPECIALS, TOKENS

Array = npt.NDArray[np.float32]
NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GEMMA_NAMES = NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
NORMAL, CONTROL, UNUSED = 1, 3, 5


def write_tiny_gguf(
    path: Path,
    architecture: str,
    *,
    seed: int = 0,
    quantization: str = "F32",
    metadata: dict[str, Any] | None = None,
    extra: dict[str, Array] | None = None,
    **overrides: Any,
) -> Path:
    """Write a GGUF file of ``tiny_weights(tiny_config(architecture, **overrides), seed)`` and return its path.

    ``architecture``: llama, qwen2, qwen3 or gemma3. ``quantization``: F32, F16, BF16, Q8_0, Q4_0, Q4_1 for matrices.
    ``metadata`` adds keys or, with None, leaves one out; ``extra`` adds tensors under GGUF names.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    config = tiny_config(architecture, **overrides)
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in {**_model_keys(architecture, config), **_tokenizer_keys(config), **(metadata or {})}.items():
        _add_value(writer, key, value)
    for name, array in tiny_weights(config, seed).items():
        stored, kind = _stored(name, array, architecture, config)
        _add_tensor(writer, stored, kind, "F32" if kind.ndim == 1 else quantization)
    for name, array in (extra or {}).items():
        _add_tensor(writer, name, array, "F32")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _stored(name: str, array: Array, architecture: str, config: dict[str, Any]) -> tuple[str, Array]:
    outer = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    base, _, suffix = name.rpartition(".")
    if architecture == "gemma3" and name.endswith("norm.weight"):
        array = array + np.float32(1)
    if base in outer:
        return f"{outer[base]}.{suffix}", array
    _, _, layer, part = base.split(".", 3)
    if architecture == "llama" and part in ("self_attn.q_proj", "self_attn.k_proj"):
        heads = config["num_attention_heads" if "q_proj" in part else "num_key_value_heads"]
        array = _interleave(array, heads)
    names = GEMMA_NAMES if architecture == "gemma3" else NAMES
    return f"blk.{layer}.{names[part]}.{suffix}", array


def _interleave(array: Array, heads: int) -> Array:
    """Row i and row i + Dh/2 of a head side by side, one row at a time so that it cannot share a mistake."""
    head_dim = array.shape[0] // heads
    rows = [
        head * head_dim + i + half * (head_dim // 2)
        for head in range(heads)
        for i in range(head_dim // 2)
        for half in (0, 1)
    ]
    return array[rows]


def _model_keys(architecture: str, config: dict[str, Any]) -> dict[str, Any]:
    keys = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "rope.freq_base": float(config["rope_theta"]),
    }
    if "head_dim" in config:
        keys |= {"attention.key_length": config["head_dim"], "attention.value_length": config["head_dim"]}
    if architecture == "gemma3":
        keys["attention.sliding_window"] = config["sliding_window"]
        keys["attention.sliding_window_pattern"] = config["sliding_window_pattern"]
    return {f"{architecture}.{key}": value for key, value in keys.items()}


def _tokenizer_keys(config: dict[str, Any]) -> dict[str, Any]:
    padding = [f"[PAD{i}]" for i in range(len(TOKENS), config["vocab_size"])]
    kinds = [CONTROL] * len(SPECIALS) + [NORMAL] * (len(TOKENS) - len(SPECIALS)) + [UNUSED] * len(padding)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*TOKENS, *padding],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def _add_value(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def _add_tensor(writer: gguf.GGUFWriter, name: str, array: Array, quantization: str) -> None:
    kind = gguf.GGMLQuantizationType[quantization]
    if quantization == "F32":
        writer.add_tensor(name, np.ascontiguousarray(array))
    else:
        writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)
