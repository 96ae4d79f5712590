"""The NumPy draft against torch in float64, and chains against steps taken one at a time."""

from dataclasses import replace

import numpy as np
import pytest
from draftsmith.builder.draft.reference import DraftCache, ReferenceDraft
from draftsmith.builder.spec.draft import DraftSpec
from draftsmith.builder.spec.target import RopeSpec

SPEC = DraftSpec(
    hidden_size=24,
    intermediate_size=40,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    norm_eps=1e-5,
    activation="silu",
    attention_scale=8**-0.5,
    qkv_bias=False,
    o_bias=False,
    mlp_bias=False,
    rope=RopeSpec(kind="default", theta=10000.0),
    max_positions=64,
    target_hidden_size=16,
    vocab_size=50,
    head_vocab_size=50,
    feature_layers=(1, 2, 3),
    fc_bias=False,
    norm_before_fc=False,
    fc_norm=False,
    norm_before_residual=False,
    feeds_back_normed=False,
    norms_head_input=True,
    embed_scale=1.0,
    own_embedding=True,
    own_head=True,
    window=None,
)
SWITCHES = {
    "plain": {},
    "biases": {"qkv_bias": True, "o_bias": True, "mlp_bias": True, "fc_bias": True},
    "norm_before_fc": {"norm_before_fc": True},
    "fc_norm": {"fc_norm": True},
    "norm_before_residual": {"norm_before_residual": True},
    "feeds_back_normed": {"feeds_back_normed": True},
    "no_head_norm": {"norms_head_input": False},
    "gelu_scaled": {"activation": "gelu_tanh", "embed_scale": 4.9},
    "window": {"window": 3},
}


def make_weights(spec: DraftSpec, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    d, size, wide = spec.hidden_size, spec.head_dim, spec.intermediate_size
    shapes = {
        "fc.weight": (d, spec.feature_size),
        "fc.bias": (d,),
        "q_proj.weight": (spec.num_heads * size, 2 * d),
        "k_proj.weight": (spec.num_kv_heads * size, 2 * d),
        "v_proj.weight": (spec.num_kv_heads * size, 2 * d),
        "o_proj.weight": (d, spec.num_heads * size),
        "gate_proj.weight": (wide, d),
        "up_proj.weight": (wide, d),
        "down_proj.weight": (d, wide),
        "embed_tokens.weight": (spec.vocab_size, d),
    }
    shapes |= {name.replace("weight", "bias"): shape[:1] for name, shape in shapes.items() if "_proj" in name}
    weights = {name: random.normal(0, 0.3, shape) for name, shape in shapes.items()}
    norms = {"embedding_norm": d, "hidden_norm": d, "mlp_norm": d, "norm": d, "fc_input_norm": spec.feature_size}
    norms |= {f"fc_norm.{i}": spec.target_hidden_size for i in range(3)}
    weights |= {f"{name}.weight": random.normal(1, 0.2, length) for name, length in norms.items()}
    return {name: value.astype(np.float32) for name, value in weights.items()}


def make_draft(spec: DraftSpec, dtype=np.float64) -> ReferenceDraft:
    return ReferenceDraft(spec, make_weights(spec).__getitem__, embedding=None, dtype=dtype)


def make_text(spec: DraftSpec, size: int = 9) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    return random.integers(0, spec.vocab_size, size), random.normal(size=(size, spec.feature_size))


def torch_prefill(spec: DraftSpec, ids, features):
    """The description in ``DraftSpec``, written with torch's own operators."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    w = {name: torch.from_numpy(value).double() for name, value in make_weights(spec).items()}

    def norm(x, name):
        return functional.rms_norm(x, x.shape[-1:], w[f"{name}.weight"], spec.norm_eps)

    def linear(x, name, has_bias):
        return functional.linear(x, w[f"{name}.weight"], w[f"{name}.bias"] if has_bias else None)

    def heads(x):
        return x.view(len(x), -1, spec.head_dim).transpose(0, 1)

    def rotate(x):
        """Complex rotation of (x_i, x_{i + D/2})."""
        half = spec.head_dim // 2
        angles = torch.outer(torch.arange(len(ids)).double(), 10000.0 ** (-torch.arange(half).double() / half))
        turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([turned.real, turned.imag], -1)

    x = torch.from_numpy(features)
    if spec.norm_before_fc:
        x = norm(x, "fc_input_norm")
    if spec.fc_norm:
        x = torch.cat([norm(part, f"fc_norm.{i}") for i, part in enumerate(x.chunk(3, -1))], -1)
    hidden = linear(x, "fc", spec.fc_bias)
    embedded = functional.embedding(torch.from_numpy(ids), w["embed_tokens.weight"]) * spec.embed_scale
    both = torch.cat([norm(embedded, "embedding_norm"), norm(hidden, "hidden_norm")], -1)
    q, k, v = (heads(linear(both, f"{part}_proj", spec.qkv_bias)) for part in "qkv")
    distance = torch.arange(len(ids))[:, None] - torch.arange(len(ids))[None]
    mask = (distance >= 0) & (distance < (spec.window or 1000))
    attended = functional.scaled_dot_product_attention(
        rotate(q)[None],
        rotate(k)[None],
        v[None],
        attn_mask=mask[None, None],
        scale=spec.attention_scale,
        enable_gqa=True,
    )[0]
    residual = norm(hidden, "hidden_norm") if spec.norm_before_residual else hidden
    residual = residual + linear(attended.transpose(0, 1).reshape(len(ids), -1), "o_proj", spec.o_bias)
    x = norm(residual, "mlp_norm")
    gate = linear(x, "gate_proj", spec.mlp_bias)
    gate = functional.silu(gate) if spec.activation == "silu" else functional.gelu(gate, approximate="tanh")
    y = residual + linear(gate * linear(x, "up_proj", spec.mlp_bias), "down_proj", spec.mlp_bias)
    fed = norm(y, "norm") if spec.feeds_back_normed else y
    return fed.numpy(), (norm(y, "norm") if spec.norms_head_input else y).numpy()


@pytest.mark.parametrize("name", SWITCHES)
def test_prefill_equals_torch(name):
    spec = replace(SPEC, **SWITCHES[name])
    ids, features = make_text(spec)
    fed, head_input = torch_prefill(spec, ids, features)
    step = make_draft(spec).prefill(ids, features)
    np.testing.assert_allclose(step.hidden_out, fed, atol=1e-10)
    np.testing.assert_allclose(step.head_input, head_input, atol=1e-10)


def test_float32_is_near_float64():
    ids, features = make_text(SPEC)
    exact = make_draft(SPEC).prefill(ids, features)
    single = make_draft(SPEC, np.float32).prefill(ids, features)
    assert single.head_input.dtype == np.float32
    np.testing.assert_allclose(single.head_input, exact.head_input, atol=2e-5)


@pytest.mark.parametrize("name", ["plain", "window", "feeds_back_normed"])
def test_entries_behind_a_cache_equal_the_whole_sequence(name):
    spec = replace(SPEC, **SWITCHES[name])
    ids, features = make_text(spec)
    draft = make_draft(spec)
    whole = draft.prefill(ids, features)
    first = draft.prefill(ids[:5], features[:5])
    rest = draft.step(ids[5:], draft.fuse(features[5:]), np.arange(5, 9), first.cache)
    np.testing.assert_allclose(rest.head_input, whole.head_input[5:], atol=1e-12)
    np.testing.assert_allclose(rest.cache.keys, whole.cache.keys, atol=1e-12)


@pytest.mark.parametrize("name", ["plain", "window", "feeds_back_normed", "norm_before_residual"])
def test_chains_equal_steps_taken_one_at_a_time(name):
    """From each last known feature m: step 2 reads the columns 0..m and itself, step 3 the same and both its own."""
    spec = replace(SPEC, **SWITCHES[name])
    ids, features = make_text(spec)
    draft = make_draft(spec)
    chains = draft.chain(ids, features, 3)
    assert [len(states) for states in chains] == [9, 8, 7]
    for start in range(7):
        step = draft.prefill(ids[: start + 1], features[: start + 1])
        np.testing.assert_allclose(chains[0][start], step.head_input[-1], atol=1e-12)
        for number in (2, 3):
            entry = start + number - 1
            step = draft.step(ids[[entry]], step.hidden_out[-1:], np.array([entry]), step.cache)
            np.testing.assert_allclose(chains[number - 1][start], step.head_input[0], atol=1e-12)


def test_a_tree_node_equals_its_path_alone():
    """Two children of one parent and a grandchild of the second, in one block behind a cache."""
    ids, features = make_text(SPEC, 4)
    draft = make_draft(SPEC)
    context = draft.prefill(ids, features)
    hidden = np.random.default_rng(2).normal(size=(3, SPEC.hidden_size))
    visible = np.ones((3, 7), bool)
    visible[:, 4:] = [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    tree = draft.step(np.array([7, 8, 9]), hidden, np.array([4, 4, 5]), context.cache, visible)
    path = draft.step(np.array([8, 9]), hidden[1:], np.array([4, 5]), context.cache)
    np.testing.assert_allclose(tree.head_input[1:], path.head_input, atol=1e-12)


def test_the_targets_embedding_is_borrowed():
    ids, features = make_text(SPEC)
    weights = make_weights(SPEC)
    borrowed = ReferenceDraft(
        replace(SPEC, own_embedding=False),
        {n: w for n, w in weights.items() if n != "embed_tokens.weight"}.__getitem__,
        embedding=weights["embed_tokens.weight"],
        dtype=np.float64,
    )
    np.testing.assert_array_equal(
        borrowed.prefill(ids, features).head_input, make_draft(SPEC).prefill(ids, features).head_input
    )


def test_an_embedding_of_the_wrong_shape_is_refused():
    with pytest.raises(ValueError, match=r"draft embedding: expected \[50, 24\], found None"):
        ReferenceDraft(replace(SPEC, own_embedding=False), make_weights(SPEC).__getitem__, embedding=None)


def test_no_visible_column_but_itself_copies_the_value():
    """Attention over one column is that column's value, whatever the scores."""
    ids, features = make_text(SPEC, 2)
    draft = make_draft(SPEC)
    alone = draft.step(ids[:1], draft.fuse(features[:1]), np.array([7]))
    cache = DraftCache(alone.cache.keys, alone.cache.values, np.array([0]))
    only_self = np.array([[False, True]])
    behind = draft.step(ids[:1], draft.fuse(features[:1]), np.array([7]), cache, only_self)
    np.testing.assert_allclose(behind.head_input, alone.head_input, atol=1e-12)
