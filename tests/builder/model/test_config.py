"""Configs -> specs: the traps of each family, and refusals that name the key."""

from typing import Any

import pytest
from draftsmith.builder.errors import CheckpointError
from draftsmith.builder.model import read_model_spec
from draftsmith.builder.spec.target import ModelSpec

from tests.tiny_models import tiny_config


def read(architecture: str, *, without: tuple[str, ...] = (), **overrides: Any) -> ModelSpec:
    values = tiny_config(architecture, **overrides)
    return read_model_spec({key: value for key, value in values.items() if key not in without}, "config.json")


def refusal(architecture: str, **overrides: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        read(architecture, **overrides)
    return str(caught.value)


def test_head_size_need_not_be_hidden_over_heads() -> None:
    spec = read("llama", hidden_size=64, num_attention_heads=4, head_dim=32)
    assert (spec.head_dim, spec.attention_scale) == (32, 32**-0.5)


def test_head_size_is_hidden_over_heads_where_absent() -> None:
    assert read("llama", without=("head_dim",)).head_dim == 16
    assert read("llama", head_dim=None).head_dim == 16


def test_qwen3_without_head_size_has_128_as_transformers_says() -> None:
    assert read("qwen3", without=("head_dim",)).head_dim == 128


def test_hidden_size_that_heads_do_not_divide_is_refused() -> None:
    assert "config key `hidden_size`: expected a multiple of num_attention_heads 5" in refusal(
        "llama", without=("head_dim",), num_attention_heads=5, num_key_value_heads=5
    )


def test_absent_key_value_heads_mean_one_for_each_query_head() -> None:
    assert read("llama", without=("num_key_value_heads",)).num_kv_heads == 4


def test_ties_follow_each_familys_own_default() -> None:
    assert not read("llama", without=("tie_word_embeddings",)).tied_head
    assert not read("qwen2", without=("tie_word_embeddings",)).tied_head
    assert read("gemma3", without=("tie_word_embeddings",)).tied_head


def test_biases_of_each_family() -> None:
    def biases(spec: ModelSpec) -> tuple[bool, bool, bool]:
        return spec.qkv_bias, spec.o_bias, spec.mlp_bias

    assert biases(read("llama")) == (False, False, False)
    assert biases(read("llama", attention_bias=True)) == (True, True, False)
    assert biases(read("llama", mlp_bias=True)) == (False, False, True)
    assert biases(read("qwen2")) == (True, False, False)
    assert biases(read("qwen3", attention_bias=True)) == (True, True, False)


def test_mistral_slides_on_every_layer_or_on_none() -> None:
    spec = read("mistral", sliding_window=8)
    assert (spec.architecture, spec.sliding_window, set(spec.layer_kinds)) == ("llama", 8, {"sliding"})
    spec = read("mistral", sliding_window=None)
    assert (spec.sliding_window, set(spec.layer_kinds)) == (None, {"full"})


def test_mistral_without_a_window_key_is_refused_since_its_meaning_changed() -> None:
    assert "config key `sliding_window`" in refusal("mistral", without=("sliding_window",))


def test_qwen2_slides_from_max_window_layers_up_only_when_switched_on() -> None:
    assert read("qwen2", sliding_window=32).sliding_window is None
    spec = read("qwen2", use_sliding_window=True, sliding_window=32, max_window_layers=3)
    assert spec.sliding_window == 32
    assert spec.layer_kinds == ("full", "full", "full", "sliding")


def test_qwen2_with_the_window_above_all_layers_has_none() -> None:
    assert read("qwen2", use_sliding_window=True, max_window_layers=28).sliding_window is None


def test_layer_types_win_over_the_rule() -> None:
    kinds = ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]
    assert read("qwen3", use_sliding_window=True, sliding_window=16, layer_types=kinds).layer_kinds == (
        *("full", "sliding"),
        *("full", "sliding"),
    )


def test_unknown_layer_type_and_wrong_count_are_refused() -> None:
    assert "'chunked_attention'" in refusal("gemma3", layer_types=["chunked_attention"] * 4)
    assert "expected a list of 4 entries" in refusal("gemma3", layer_types=["full_attention"])


def test_sliding_layer_types_with_the_window_off_are_refused() -> None:
    assert "use_sliding_window is off" in refusal("qwen2", layer_types=["sliding_attention"] * 4)


def test_gemma_layers_scales_and_norms() -> None:
    spec = read("gemma3", num_hidden_layers=7, sliding_window_pattern=6, query_pre_attn_scalar=168)
    assert spec.layer_kinds == ("sliding",) * 5 + ("full", "sliding")
    assert spec.attention_scale == 168**-0.5
    assert (spec.embed_scale, spec.norm_offset, spec.post_norms, spec.qk_norm) == (8.0, 1.0, True, True)
    assert spec.activation == "gelu_tanh"


def test_gemma_rope_differs_by_layer_kind() -> None:
    spec = read("gemma3", rope_scaling={"rope_type": "linear", "factor": 8.0})
    assert spec.local_rope is not None
    assert (spec.rope.kind, spec.rope.theta, spec.rope.factor) == ("linear", 1_000_000.0, 8.0)
    assert (spec.local_rope.kind, spec.local_rope.theta) == ("default", 10_000.0)


def test_gemma_rope_in_the_spelling_of_transformers_5() -> None:
    spec = read(
        "gemma3",
        without=("rope_theta", "rope_local_base_freq"),
        rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 500_000.0, "factor": 2.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5_000.0},
        },
    )
    assert spec.local_rope is not None
    assert (spec.rope.kind, spec.rope.theta, spec.local_rope.theta) == ("linear", 500_000.0, 5_000.0)


def test_multimodal_gemma_is_read_through_its_text_config() -> None:
    text = {**tiny_config("gemma3")}
    spec = read_model_spec({"model_type": "gemma3", "text_config": text, "vision_config": {}}, "config.json")
    assert spec == read("gemma3")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attn_logit_softcapping", 50.0),
        ("final_logit_softcapping", 30.0),
        ("partial_rotary_factor", 0.5),
        ("quantization_config", {"quant_method": "gptq"}),
        ("num_local_experts", 8),
        ("num_experts", 64),
        ("use_bidirectional_attention", True),
        ("attention_multiplier", 0.0078125),
    ],
)
def test_keys_that_change_the_maths_are_refused_by_name(key: str, value: object) -> None:
    assert refusal("llama", **{key: value}).startswith(f"config key `{key}`: expected a model without it")


@pytest.mark.parametrize(("key", "value"), [("attn_logit_softcapping", None), ("partial_rotary_factor", 1.0)])
def test_neutral_values_of_those_keys_are_fine(key: str, value: object) -> None:
    assert read("llama", **{key: value}) == read("llama")


def test_unknown_activation_and_model_type_are_refused_by_name() -> None:
    assert "config key `hidden_act`" in refusal("llama", hidden_act="relu2")
    assert refusal("llama", model_type="mamba").startswith("model type `mamba`: expected one of llama, ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", 0),
        ("hidden_size", "64"),
        ("num_hidden_layers", 10**9),
        ("num_attention_heads", True),
        ("num_key_value_heads", 3),
        ("rms_norm_eps", float("nan")),
        ("rms_norm_eps", -1e-5),
        ("vocab_size", 2**40),
        ("head_dim", 15),
        ("tie_word_embeddings", "yes"),
        ("rope_scaling", "linear"),
    ],
)
def test_wrong_values_name_the_key(key: str, value: object) -> None:
    assert f"config key `{key}`" in refusal("llama", **{key: value})


def test_missing_key_is_named() -> None:
    assert "config key `intermediate_size`: expected a value, found none (config.json)" in refusal(
        "llama", without=("intermediate_size",)
    )


def test_spec_survives_json() -> None:
    for architecture in ("llama", "mistral", "qwen2", "qwen3", "gemma3"):
        spec = read(architecture)
        assert ModelSpec.from_dict(spec.to_dict()) == spec
