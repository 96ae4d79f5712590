"""Writes a trained draft in SpecForge's layout with a speculative vocabulary (SpecVocab), small enough to ship.

Linears are float16, norms float32; the ranking's vocabulary matrix is INT8 with a scale a row (``.codes`` and
``.scales``). Embedding and head are left out: they are the target's.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from draftsmith.plugins.packing import round_rows

from ..spec.draft import DraftSpec
from .draft_model import DraftModel
from .settings import TrainSettings

Arrays = dict[str, npt.NDArray[Any]]
LINEAR_NAMES = {
    "fc": "fc.weight",
    "q_proj": "midlayer.self_attn.q_proj.weight",
    "k_proj": "midlayer.self_attn.k_proj.weight",
    "v_proj": "midlayer.self_attn.v_proj.weight",
    "o_proj": "midlayer.self_attn.o_proj.weight",
    "gate_proj": "midlayer.mlp.gate_proj.weight",
    "up_proj": "midlayer.mlp.up_proj.weight",
    "down_proj": "midlayer.mlp.down_proj.weight",
}
NORM_NAMES = {
    "embedding_norm": "midlayer.input_layernorm.weight",
    "hidden_norm": "midlayer.hidden_norm.weight",
    "mlp_norm": "midlayer.post_attention_layernorm.weight",
    "norm": "norm.weight",
}
DOWN = "vocabulary_speculator.down_proj.weight"
VOCABULARY = "vocabulary_speculator.vocab_proj.weight"


def export_draft(
    model: DraftModel, settings: TrainSettings, folder: Path, *, target_sha256: str, facts: dict[str, Any]
) -> None:
    """``config.json`` and ``model.safetensors`` in ``folder``; ``facts`` join the ``draftsmith`` section."""
    from safetensors.numpy import save_file  # noqa: PLC0415 (optional extra)

    folder.mkdir(parents=True, exist_ok=True)
    config = draft_config(model.spec, settings, target_sha256=target_sha256, facts=facts)
    part = folder / "model.safetensors.part"
    save_file(export_tensors(model), part, metadata={"format": "pt"})
    part.replace(folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def export_tensors(model: DraftModel) -> Arrays:
    """Arrays by SpecForge's names."""
    arrays: Arrays = {name: _array(model.linears[own]).astype(np.float16) for own, name in LINEAR_NAMES.items()}
    arrays |= {name: _array(model.norms[own]) for own, name in NORM_NAMES.items()}
    codes, scales = round_rows(_array(model.ranking_vocabulary))
    return arrays | {
        DOWN: _array(model.ranking_down).astype(np.float16),
        f"{VOCABULARY}.codes": codes,
        f"{VOCABULARY}.scales": scales,
    }


def draft_config(
    spec: DraftSpec, settings: TrainSettings, *, target_sha256: str, facts: dict[str, Any]
) -> dict[str, Any]:
    """SpecForge's keys; its layer ids name layer outputs, one before the inputs that ``DraftSpec`` counts."""
    rope: dict[str, Any] = {"rope_theta": spec.rope.theta, "rope_scaling": None}
    if spec.rope.kind != "default":
        given = {"rope_type": spec.rope.kind, "factor": spec.rope.factor}
        given |= {"original_max_position_embeddings": spec.rope.original_max_positions}
        names = ("low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor")
        given |= {name: getattr(spec.rope, name) for name in (*names, "mscale", "mscale_all_dim", "truncate")}
        rope["rope_scaling"] = {name: value for name, value in given.items() if value is not None}
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": spec.norm_eps,
        "attention_bias": False,
        "mlp_bias": False,
        "max_position_embeddings": spec.max_positions,
        **rope,
        "tie_word_embeddings": False,
        "vocab_size": spec.vocab_size,
        "draft_vocab_size": None,
        "target_hidden_size": spec.target_hidden_size,
        "norm_before_residual": False,
        "torch_dtype": "float16",
        "eagle_config": {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": [layer - 1 for layer in spec.feature_layers],
        },
        "vocabulary_speculator": {
            "intermediate_size": settings.rank,
            "num_candidate_tokens": settings.num_candidates,
        },
        "draftsmith": {"target_sha256": target_sha256, "embed_scale": spec.embed_scale, **facts},
    }


def _array(tensor: Any) -> npt.NDArray[np.float32]:
    return np.asarray(tensor.detach().float().cpu().numpy(), np.float32)
