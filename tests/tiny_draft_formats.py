"""Tiny seeded EAGLE-3 drafts in the layout of each format, for the tiny targets of ``tests/tiny_models.py``.

``write_tiny_draft(folder, "specforge")`` writes a folder that fits ``write_tiny_checkpoint(..., "llama")``.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from tests.tiny_models import CONFIGS

Arrays = dict[str, npt.NDArray[Any]]

FORMATS = ("eagle3", "specforge", "speculators", "modelopt", "specvocab")
HIDDEN, MIDDLE, HEADS, KV_HEADS, HEAD_DIM = 64, 80, 4, 2, 32  # head size differs from the tiny llama's 16
VOCAB_SIZE: int = CONFIGS["llama"]["vocab_size"]
RANK, NUM_CANDIDATES = 8, 32
_PREFIXES = {"speculators": "layers.0.", "modelopt": "layers.0."}


def layer_settings() -> dict[str, Any]:
    """The keys that describe the draft's layer, spelled as in transformers' LlamaConfig."""
    return {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": MIDDLE,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "vocab_size": VOCAB_SIZE,
    }


def tiny_draft_config(draft_format: str, *, draft_vocab_size: int | None = None) -> dict[str, Any]:
    """The config of one format. Keys that formats may leave out (feature layers, residual norm) are left out."""
    size = {"draft_vocab_size": draft_vocab_size or VOCAB_SIZE}
    if draft_format == "eagle3":
        return {"architectures": ["LlamaForCausalLM"], **layer_settings(), **size, "pretraining_tp": 1}
    if draft_format == "specforge":
        return {"architectures": ["LlamaForCausalLMEagle3"], **layer_settings(), **size}
    if draft_format == "specvocab":
        ranking = {"intermediate_size": RANK, "num_candidate_tokens": NUM_CANDIDATES}
        common = {"architectures": ["LlamaForCausalLMEagle3"], **layer_settings()}
        return {**common, "draft_vocab_size": None, "vocabulary_speculator": ranking}
    if draft_format == "speculators":
        return {
            "architectures": ["Eagle3Speculator"],
            "speculators_model_type": "eagle3",
            "speculators_version": "0.9.0",
            "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "somewhere"}},
            "transformer_layer_config": layer_settings(),
            **size,
        }
    nested = {
        "use_aux_hidden_state": True,
        "use_last_layernorm": True,
        "use_input_layernorm_in_first_layer": True,
        "use_mtp_layernorm": False,
        "next_layer_regular": True,
        "parallel_draft_step": 1,
    }
    return {"architectures": ["LlamaForCausalLMEagle3"], **layer_settings(), **size, "eagle_config": nested}


def tiny_draft_weights(draft_format: str, *, head_rows: int = VOCAB_SIZE, seed: int = 0) -> Arrays:
    """Float32 arrays by the format's names: no embedding, a head of ``head_rows`` except for SpecVocab."""
    random = np.random.default_rng(seed)
    prefix = _PREFIXES.get(draft_format, "midlayer.")
    query, cache = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    matrices = {
        "fc": (HIDDEN, 3 * HIDDEN),
        f"{prefix}self_attn.q_proj": (query, 2 * HIDDEN),
        f"{prefix}self_attn.k_proj": (cache, 2 * HIDDEN),
        f"{prefix}self_attn.v_proj": (cache, 2 * HIDDEN),
        f"{prefix}self_attn.o_proj": (HIDDEN, query),
        f"{prefix}mlp.gate_proj": (MIDDLE, HIDDEN),
        f"{prefix}mlp.up_proj": (MIDDLE, HIDDEN),
        f"{prefix}mlp.down_proj": (HIDDEN, MIDDLE),
    }
    if draft_format == "specvocab":
        matrices |= {
            "vocabulary_speculator.down_proj": (RANK, HIDDEN),
            "vocabulary_speculator.vocab_proj": (VOCAB_SIZE, RANK),
        }
    else:
        matrices["lm_head"] = (head_rows, HIDDEN)
    arrays: Arrays = {
        f"{name}.weight": random.normal(0, shape[1] ** -0.5, shape).astype(np.float32)
        for name, shape in matrices.items()
    }
    layer_norms = [f"{prefix}{n}" for n in ("input_layernorm", "hidden_norm", "post_attention_layernorm")]
    for name in [*layer_norms, "norm"]:
        arrays[f"{name}.weight"] = random.normal(1, 0.2, HIDDEN).astype(np.float32)
    return arrays


def write_tiny_draft(
    folder: Path,
    draft_format: str,
    *,
    seed: int = 0,
    head_rows: int = VOCAB_SIZE,
    drop: Iterable[str] = (),
    extra: Mapping[str, npt.NDArray[Any]] | None = None,
    drop_keys: Iterable[str] = (),
    **overrides: Any,
) -> Path:
    """Write a folder and return it. ``drop``/``extra``: tensors left out or added, ``drop_keys``: config keys left out
    (of the layer as well); other keywords replace top-level config keys, and are merged where they are objects."""
    folder.mkdir(parents=True, exist_ok=True)
    config = tiny_draft_config(draft_format, draft_vocab_size=head_rows)
    for key, value in overrides.items():
        config[key] = {**config[key], **value} if isinstance(config.get(key), dict) and value else value
    for key in drop_keys:
        config.pop(key, None)
        config.get("transformer_layer_config", {}).pop(key, None)
    arrays = {**tiny_draft_weights(draft_format, head_rows=head_rows, seed=seed), **(extra or {})}
    for name in drop:
        del arrays[name]
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
