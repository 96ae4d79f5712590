"""Memory estimates by hand for a tiny Llama: 2 layers, hidden 8, 2 heads of 4, 1 KV head, middle 16, 10 tokens."""

import math

import pytest
from draftsmith.builder.draft.strict import expected_shapes
from draftsmith.builder.model import read_model_spec
from draftsmith.builder.spec.memory import count_draft_parameters, count_parameters, estimate_memory
from draftsmith.builder.spec.target import ModelSpec

from tests.tiny_drafts import make_draft_spec
from tests.tiny_models import tiny_config


def tiny_spec(*, tied: bool) -> ModelSpec:
    values = tiny_config(
        "llama",
        num_hidden_layers=2,
        hidden_size=8,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        intermediate_size=16,
        vocab_size=10,
        tie_word_embeddings=tied,
    )
    return read_model_spec(values, "config.json")


def test_counts_by_hand() -> None:
    counts = count_parameters(tiny_spec(tied=False))
    layer = 8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 16  # q, k and v, o, MLP
    assert (counts.embedding, counts.head, counts.linears) == (80, 80, 2 * layer)
    assert counts.small == 2 * 16 + 8
    assert counts.linear_rows == 2 * (8 + 4 + 4 + 8 + 16 + 16 + 8) + 10


def test_cache_is_two_float_rows_a_layer_and_token() -> None:
    estimate = estimate_memory(tiny_spec(tied=True), "fp16", max_batch=3, max_length=100)
    assert estimate.cache_bytes_per_token == 2 * 2 * 1 * 4 * 4
    assert estimate.cache_bytes_per_slot == 100 * 64
    assert estimate.logits_bytes == 3 * 10 * 4
    assert estimate.serve_bytes == estimate.weight_bytes + 3 * 6400 + 120


def test_half_precision_halves_the_file_but_not_a_cpus_memory() -> None:
    full, half = (estimate_memory(tiny_spec(tied=True), p, max_batch=1, max_length=1) for p in ("fp32", "fp16"))
    assert half.file_bytes < 0.6 * full.file_bytes
    assert half.weight_bytes == full.weight_bytes


def test_tied_head_is_counted_once() -> None:
    tied, untied = (count_parameters(tiny_spec(tied=tied)).total for tied in (True, False))
    assert untied - tied == 80


@pytest.mark.parametrize(
    "switches",
    [
        {},
        {"own_embedding": True, "own_head": True, "head_vocab_size": 7},
        {"fc_bias": True, "qkv_bias": True, "o_bias": True, "mlp_bias": True, "norm_before_fc": True},
        {"fc_norm": True, "norms_head_input": False},
    ],
)
def test_a_drafts_counts_are_those_of_its_tensors(switches: dict[str, object]) -> None:
    spec = make_draft_spec(tiny_spec(tied=True), **switches)
    sizes = {name: math.prod(shape) for name, shape in expected_shapes(spec).items()}
    counts = count_draft_parameters(spec)
    assert counts.total == sum(sizes.values())
    assert counts.embedding == sizes.get("embed_tokens.weight", 0)
    assert counts.head == sizes.get("lm_head.weight", 0)
    rows = [shape[0] for name, shape in expected_shapes(spec).items() if len(shape) == 2 and name[:5] != "embed"]
    assert counts.linear_rows == sum(rows)


def test_a_drafts_own_cache_is_counted_beside_the_targets() -> None:
    """One layer of 2 KV heads of 32: keys and values of 2 x 64 float32 a token."""
    target = tiny_spec(tied=True)
    draft = make_draft_spec(target)
    alone, both = (estimate_memory(target, "int8", max_batch=3, max_length=100, draft=d) for d in (None, draft))
    assert (alone.draft_cache_bytes_per_slot, alone.draft_weight_bytes) == (0, 0)
    assert both.draft_cache_bytes_per_slot == 100 * 2 * 64 * 4
    assert both.cache_bytes_per_slot == alone.cache_bytes_per_slot
    assert both.serve_bytes - alone.serve_bytes == 3 * 51_200 + both.draft_weight_bytes
    assert both.file_bytes - alone.file_bytes == both.draft_file_bytes == both.draft_weight_bytes


def test_a_language_model_as_draft_has_the_cache_of_all_its_layers() -> None:
    target = tiny_spec(tied=True)
    both = estimate_memory(target, "fp16", max_batch=1, max_length=10, draft=target)
    assert both.draft_cache_bytes_per_slot == both.cache_bytes_per_slot
    assert both.draft_weight_bytes == both.weight_bytes
