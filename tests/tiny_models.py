"""Tiny seeded checkpoints of each family, written with NumPy alone: Hugging Face folders and GGUF files.

``write_tiny_checkpoint(folder, "llama")`` makes a folder that both draftsmith and transformers load. Overrides of
config keys are keywords: ``write_tiny_checkpoint(folder, "qwen3", num_hidden_layers=1, tie_word_embeddings=False)``.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.tiny_tokenizer import CHAT_TEMPLATE, SPECIAL_TOKENS, VOCAB_SIZE, tokenizer_values

Arrays = dict[str, npt.NDArray[np.float32]]

_SHARED: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB_SIZE + 5,  # padding rows, as real checkpoints have
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {
        **_SHARED,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "head_dim": 16,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
    },
    "mistral": {
        **_SHARED,
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "hidden_act": "silu",
        "head_dim": 16,
        "rope_theta": 10000.0,
        "sliding_window": 8,
        "tie_word_embeddings": False,
    },
    "qwen2": {
        **_SHARED,
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "rope_theta": 1000000.0,
        "use_sliding_window": False,
        "sliding_window": 32,
        "max_window_layers": 2,
        "tie_word_embeddings": True,
    },
    "qwen3": {
        **_SHARED,
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_act": "silu",
        "head_dim": 32,
        "rope_theta": 1000000.0,
        "attention_bias": False,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
    },
    "gemma3": {
        **_SHARED,
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "head_dim": 32,
        "num_key_value_heads": 1,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "query_pre_attn_scalar": 24,
        "sliding_window": 8,
        "sliding_window_pattern": 2,
        "tie_word_embeddings": True,
    },
}
ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")


def tiny_config(architecture: str, **overrides: Any) -> dict[str, Any]:
    """The config of a tiny model; an override of None removes nothing, it writes null."""
    return {**CONFIGS[architecture], **overrides}


def tiny_weights(config: Mapping[str, Any], seed: int = 0) -> Arrays:
    """Random weights under Hugging Face's names, scaled so that logits differ by a few units."""
    random = np.random.default_rng(seed)
    gemma = config["model_type"] == "gemma3_text"
    hidden, middle = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config.get("num_key_value_heads") or config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    qkv_bias = config["model_type"] == "qwen2" or config.get("attention_bias", False)
    o_bias = bool(config.get("attention_bias", False))
    arrays: Arrays = {}

    def matrix(name: str, rows: int, columns: int, *, bias: bool = False, gain: float = 1.0) -> None:
        arrays[f"{name}.weight"] = random.normal(0, gain / columns**0.5, (rows, columns)).astype(np.float32)
        if bias:
            arrays[f"{name}.bias"] = random.normal(0, 0.2, rows).astype(np.float32)

    def norm(name: str, size: int, mean: float = 0.0 if gemma else 1.0) -> None:
        arrays[f"{name}.weight"] = random.normal(mean, 0.2, size).astype(np.float32)

    # Gemma scales embeddings by sqrt(hidden): small ones, else the tied head only repeats the last token
    matrix("model.embed_tokens", config["vocab_size"], hidden, gain=0.5 if gemma else 2.0)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        norm(f"{prefix}.input_layernorm", hidden)
        matrix(f"{prefix}.self_attn.q_proj", heads * head_dim, hidden, bias=qkv_bias, gain=1.5)
        matrix(f"{prefix}.self_attn.k_proj", kv_heads * head_dim, hidden, bias=qkv_bias, gain=1.5)
        matrix(f"{prefix}.self_attn.v_proj", kv_heads * head_dim, hidden, bias=qkv_bias)
        matrix(f"{prefix}.self_attn.o_proj", hidden, heads * head_dim, bias=o_bias)
        if config["model_type"] in ("qwen3", "gemma3_text"):
            norm(f"{prefix}.self_attn.q_norm", head_dim)
            norm(f"{prefix}.self_attn.k_norm", head_dim)
        norm(f"{prefix}.post_attention_layernorm", hidden)
        if gemma:
            norm(f"{prefix}.pre_feedforward_layernorm", hidden)
            norm(f"{prefix}.post_feedforward_layernorm", hidden)
        for name in ("gate_proj", "up_proj"):
            matrix(f"{prefix}.mlp.{name}", middle, hidden, bias=config.get("mlp_bias", False))
        matrix(f"{prefix}.mlp.down_proj", hidden, middle, bias=config.get("mlp_bias", False))
    norm("model.norm", hidden, mean=3.0 if gemma else 1.0)
    if not config.get("tie_word_embeddings", False):
        matrix("lm_head", config["vocab_size"], hidden, gain=2.0)
    return arrays


def write_tiny_checkpoint(
    folder: Path,
    architecture: str,
    *,
    seed: int = 0,
    dtype: str = "F32",
    shards: int = 1,
    drop: Iterable[str] = (),
    extra: Mapping[str, npt.NDArray[np.float32]] | None = None,
    generation: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> Path:
    """Write a Hugging Face folder and return it.

    ``architecture``: llama, mistral, qwen2, qwen3 or gemma3. ``dtype``: F32, F16 or BF16. ``shards``: files, more than
    one with an index. ``drop``/``extra``: tensors left out or added. ``generation``: generation_config.json. Other
    keywords replace config keys.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = tiny_config(architecture, **overrides)
    arrays = {**tiny_weights(config, seed), **(extra or {})}
    for name in drop:
        del arrays[name]
    _write_json(folder / "config.json", config)
    _write_weights(folder, arrays, dtype, shards)
    write_tiny_tokenizer(folder)
    if generation is not None:
        _write_json(folder / "generation_config.json", dict(generation))
    return folder


def write_tiny_tokenizer(folder: Path) -> None:
    """tokenizer.json, tokenizer_config.json with the chat template."""
    _write_json(folder / "tokenizer.json", tokenizer_values())
    values = {**SPECIAL_TOKENS, "chat_template": CHAT_TEMPLATE, "tokenizer_class": "PreTrainedTokenizerFast"}
    _write_json(folder / "tokenizer_config.json", values)


def write_safetensors(path: Path, arrays: Mapping[str, npt.NDArray[np.float32]], dtype: str = "F32") -> None:
    """One safetensors file, written from the format's description."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    begin = 0
    for name, array in arrays.items():
        data = encode_values(array, dtype)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [begin, begin + len(data)]}
        begin += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def encode_values(array: npt.NDArray[np.float32], dtype: str) -> bytes:
    """Little-endian bytes; BF16 is rounded to nearest even."""
    if dtype == "BF16":
        bits = array.astype("<f4").view("<u4").astype(np.uint64)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
    return array.astype({"F32": "<f4", "F16": "<f2"}[dtype]).tobytes()


def _write_weights(folder: Path, arrays: Arrays, dtype: str, shards: int) -> None:
    if shards == 1:
        write_safetensors(folder / "model.safetensors", arrays, dtype)
        return
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: array for i, (name, array) in enumerate(arrays.items()) if i % shards == shard}
        write_safetensors(folder / file, part, dtype)
        weight_map |= dict.fromkeys(part, file)
    _write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1), encoding="utf-8")
