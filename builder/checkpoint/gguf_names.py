"""GGUF tensor names <-> Hugging Face names. Source: llama.cpp's converter and gguf's ``tensor_mapping``."""

import re

from draftsmith.builder.model import EMBEDDING, FINAL_NORM, HEAD

OUTER = {"token_embd.weight": EMBEDDING, "output_norm.weight": FINAL_NORM, "output.weight": HEAD}
ROPE_FACTORS = "rope_freqs.weight"
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GEMMA3_LAYER = {
    **LAYER,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
BLOCK = re.compile(r"blk\.(0|[1-9][0-9]{0,5})\.([a-z0-9_]+)\.(weight|bias)")


def hf_name(name: str, architecture: str) -> str:
    """The Hugging Face name; a name that is not known is returned as it is (strict loading will name it)."""
    if name in OUTER:
        return OUTER[name]
    match = BLOCK.fullmatch(name)
    table = GEMMA3_LAYER if architecture == "gemma3" else LAYER
    if match is None or match[2] not in table:
        return name
    return f"model.layers.{int(match[1])}.{table[match[2]]}.{match[3]}"
