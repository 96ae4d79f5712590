"""The tensors a spec needs: Hugging Face names and shapes."""

from draftsmith.builder.spec.target import ModelSpec

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"


def expected_tensors(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor of the checkpoint, in the order of use; no ``lm_head.weight`` when tied."""
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (spec.vocab_size, spec.hidden_size)}
    for layer in range(spec.num_layers):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in layer_tensors(spec).items()}
    shapes[FINAL_NORM] = (spec.hidden_size,)
    if not spec.tied_head:
        shapes[HEAD] = (spec.vocab_size, spec.hidden_size)
    return shapes


def layer_tensors(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Name within a layer -> shape; linear weights are [out, in]."""
    hidden, middle = spec.hidden_size, spec.intermediate_size
    query, cache = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    shapes: dict[str, tuple[int, ...]] = {"input_layernorm.weight": (hidden,)}
    for name, rows in (("q_proj", query), ("k_proj", cache), ("v_proj", cache)):
        shapes |= _linear(f"self_attn.{name}", rows, hidden, spec.qkv_bias)
    if spec.qk_norm:
        shapes |= {"self_attn.q_norm.weight": (spec.head_dim,), "self_attn.k_norm.weight": (spec.head_dim,)}
    shapes |= _linear("self_attn.o_proj", hidden, query, spec.o_bias)
    shapes["post_attention_layernorm.weight"] = (hidden,)
    if spec.post_norms:
        shapes |= {"pre_feedforward_layernorm.weight": (hidden,), "post_feedforward_layernorm.weight": (hidden,)}
    shapes |= _linear("mlp.gate_proj", middle, hidden, spec.mlp_bias)
    shapes |= _linear("mlp.up_proj", middle, hidden, spec.mlp_bias)
    return shapes | _linear("mlp.down_proj", hidden, middle, spec.mlp_bias)


def _linear(name: str, rows: int, columns: int, bias: bool) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": (rows, columns)}
    if bias:
        shapes[f"{name}.bias"] = (rows,)
    return shapes
