"""Memory estimates by hand for a tiny Llama: 2 layers, hidden 8, 2 heads of 4, 1 KV head, middle 16, 10 tokens."""

from draftsmith.builder.model import read_model_spec
from draftsmith.builder.spec.memory import count_parameters, estimate_memory
from draftsmith.builder.spec.target import ModelSpec

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
