"""Strict loading of drafts: exactly the tensors that the spec asks for, each in its shape."""

from ..errors import CheckpointError
from ..spec.draft import DraftSpec
from .tensor_names import MAP_NAMES, RANKING_DOWN, RANKING_VOCABULARY, to_stored_name
from .tensors import DraftTensors

Shape = tuple[int, ...]


def expected_shapes(spec: DraftSpec) -> dict[str, Shape]:
    """Our names and shapes of the tensors that a draft of this spec has."""
    hidden, middle, features = spec.hidden_size, spec.intermediate_size, spec.feature_size
    query, cache = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    linears = {
        "fc": (hidden, features, spec.fc_bias),
        "q_proj": (query, 2 * hidden, spec.qkv_bias),
        "k_proj": (cache, 2 * hidden, spec.qkv_bias),
        "v_proj": (cache, 2 * hidden, spec.qkv_bias),
        "o_proj": (hidden, query, spec.o_bias),
        "gate_proj": (middle, hidden, spec.mlp_bias),
        "up_proj": (middle, hidden, spec.mlp_bias),
        "down_proj": (hidden, middle, spec.mlp_bias),
    }
    shapes: dict[str, Shape] = {f"{name}.weight": (rows, columns) for name, (rows, columns, _) in linears.items()}
    shapes |= {f"{name}.bias": (rows,) for name, (rows, _, biased) in linears.items() if biased}
    shapes |= {f"{name}.weight": (hidden,) for name in ("embedding_norm", "hidden_norm", "mlp_norm")}
    if spec.norms_head_input or spec.feeds_back_normed:
        shapes["norm.weight"] = (hidden,)
    if spec.norm_before_fc:
        shapes["fc_input_norm.weight"] = (features,)
    if spec.fc_norm:
        sizes = {f"fc_norm.{i}.weight": (spec.target_hidden_size,) for i in range(len(spec.feature_layers))}
        shapes |= sizes
    if spec.own_embedding:
        shapes["embed_tokens.weight"] = (spec.vocab_size, hidden)
    if spec.own_head:
        shapes["lm_head.weight"] = (spec.head_vocab_size, hidden)
    return shapes


def check_draft_tensors(spec: DraftSpec, tensors: DraftTensors, *, has_ranking: bool, tied_head: bool) -> None:
    """Raise ``CheckpointError`` naming the first missing, misshapen or surplus tensor, as the file calls it."""
    expected = expected_shapes(spec)
    if tied_head:
        del expected["lm_head.weight"]
    where = str(tensors.path)
    for name, shape in expected.items():
        stored = tensors.stored_name(name)
        found = tensors.shapes.get(name)
        if found is None:
            stored = to_stored_name(name, prefix=tensors.layer_prefix)
            raise CheckpointError(
                f"tensor `{stored}`",
                expected=f"it in the draft with shape {list(shape)}",
                found="none",
                where=where,
                action="The download is incomplete or the config does not belong to these weights.",
            )
        if found != shape:
            raise CheckpointError(
                f"tensor `{stored}`", expected=f"shape {list(shape)}", found=f"{list(found)}", where=where
            )
    allowed = set(expected) | set(MAP_NAMES.values()) | ({RANKING_DOWN, RANKING_VOCABULARY} if has_ranking else set())
    surplus = [name for name in tensors.shapes if name not in allowed and name != "norm.weight"]
    if surplus:
        raise CheckpointError(
            f"tensor `{tensors.stored_name(surplus[0])}`",
            expected="no tensor that the config does not ask for",
            found="it" if len(surplus) == 1 else f"it, and {len(surplus) - 1} more like it",
            where=where,
            action="The config does not belong to these weights.",
        )
