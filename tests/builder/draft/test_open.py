"""Drafts of every format are read into one form, exactly and with every default told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draftsmith.builder.checkpoint.source import Checkpoint
from draftsmith.builder.draft.checkpoint import DraftCheckpoint
from draftsmith.builder.draft.open import open_draft
from draftsmith.builder.errors import CheckpointError
from draftsmith.builder.model import read_model_spec
from safetensors.numpy import load_file, save_file

from tests.tiny_draft_formats import (
    FORMATS,
    HEAD_DIM,
    HIDDEN,
    NUM_CANDIDATES,
    RANK,
    VOCAB_SIZE,
    tiny_draft_weights,
    write_tiny_draft,
)
from tests.tiny_models import tiny_config, write_tiny_checkpoint

TARGET = read_model_spec(tiny_config("llama", num_hidden_layers=12), "config.json")
LAYER_TENSORS = {
    "q_proj.weight": "self_attn.q_proj.weight",
    "embedding_norm.weight": "input_layernorm.weight",
    "hidden_norm.weight": "hidden_norm.weight",
    "mlp_norm.weight": "post_attention_layernorm.weight",
    "down_proj.weight": "mlp.down_proj.weight",
}


def opened(folder: Path, target: Any = TARGET) -> DraftCheckpoint:
    draft = open_draft(folder, target)
    assert isinstance(draft, DraftCheckpoint)
    return draft


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_recognised_and_its_tensors_are_read_exactly(name: str, tmp_path: Path) -> None:
    draft = opened(write_tiny_draft(tmp_path, name))
    stored = tiny_draft_weights(name)
    prefix = "layers.0." if name in ("speculators", "modelopt") else "midlayer."
    assert draft.format == name
    assert (draft.spec.hidden_size, draft.spec.head_dim, draft.spec.target_hidden_size) == (HIDDEN, HEAD_DIM, HIDDEN)
    assert (draft.spec.vocab_size, draft.spec.head_vocab_size) == (VOCAB_SIZE, VOCAB_SIZE)
    assert draft.spec.own_head is (name != "specvocab") and not draft.spec.own_embedding
    for ours, theirs in LAYER_TENSORS.items():
        np.testing.assert_array_equal(draft.weights.read(ours), stored[prefix + theirs])
    for same in ("fc.weight", "norm.weight"):
        np.testing.assert_array_equal(draft.weights.read(same), stored[same])
    assert draft.target_ids is None
    draft.weights.close()


@pytest.mark.parametrize("name", FORMATS)
def test_absent_feature_layers_are_the_same_three_inputs_in_every_format_and_told(name: str, tmp_path: Path) -> None:
    draft = opened(write_tiny_draft(tmp_path, name))
    assert draft.spec.feature_layers == (2, 6, 9)
    named = "inputs 2, L//2, L-3" if name in ("eagle3", "speculators") else "outputs 1, L//2-1, L-4"
    assert any("feature layers" in c and named in c for c in draft.choices)


@pytest.mark.parametrize("name", FORMATS)
def test_explicit_layer_ids_count_inputs_or_outputs_as_the_format_does(name: str, tmp_path: Path) -> None:
    draft = opened(write_tiny_draft(tmp_path, name, eagle_aux_hidden_state_layer_ids=[1, 5, 8]))
    inputs = name in ("eagle3", "speculators")
    assert draft.spec.feature_layers == ((1, 5, 8) if inputs else (2, 6, 9))


def test_layer_ids_in_a_sub_config_are_found_and_contradictions_refused(tmp_path: Path) -> None:
    nested = {"eagle_aux_hidden_state_layer_ids": [1, 3, 5], "use_aux_hidden_state": True}
    draft = opened(write_tiny_draft(tmp_path / "a", "specforge", eagle_config=nested))
    assert draft.spec.feature_layers == (2, 4, 6)
    folder = write_tiny_draft(
        tmp_path / "b", "specforge", eagle_config=nested, eagle_aux_hidden_state_layer_ids=[0, 3, 5]
    )
    with pytest.raises(CheckpointError, match="eagle_aux_hidden_state_layer_ids"):
        open_draft(folder, TARGET)


@pytest.mark.parametrize("layers", [[2, 6, 12], [-1, 2, 3], [], "2", [True, 1, 2]])
def test_layers_that_the_target_does_not_have_are_refused(layers: object, tmp_path: Path) -> None:
    folder = write_tiny_draft(tmp_path, "speculators", eagle_aux_hidden_state_layer_ids=layers)
    with pytest.raises(CheckpointError, match="eagle_aux_hidden_state_layer_ids"):
        open_draft(folder, TARGET)


def test_features_that_are_switched_off_are_refused_by_name(tmp_path: Path) -> None:
    folder = write_tiny_draft(tmp_path, "modelopt", eagle_config={"use_aux_hidden_state": False})
    with pytest.raises(CheckpointError, match="use_aux_hidden_state"):
        open_draft(folder, TARGET)


def test_a_list_of_two_layers_asks_for_two_features(tmp_path: Path) -> None:
    fc = np.ones((HIDDEN, 2 * HIDDEN), np.float32)
    folder = write_tiny_draft(
        tmp_path / "a", "speculators", extra={"fc.weight": fc}, eagle_aux_hidden_state_layer_ids=[1, 4]
    )
    assert opened(folder).spec.feature_size == 2 * HIDDEN
    folder = write_tiny_draft(tmp_path / "b", "speculators", extra={"fc.weight": fc}, target_hidden_size=HIDDEN)
    with pytest.raises(CheckpointError, match=r"fc\.weight.*3 features of 64"):
        open_draft(folder, TARGET)


def test_without_a_target_the_layers_are_unknown_and_the_rest_is_read(tmp_path: Path) -> None:
    draft = opened(write_tiny_draft(tmp_path, "eagle3"), None)
    assert draft.spec.feature_layers == ()
    assert any("--target" in choice for choice in draft.choices)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("value", [None, True, False])
def test_norm_before_residual_is_the_files_and_its_default_has_a_reason(
    name: str, value: bool | None, tmp_path: Path
) -> None:
    options = {} if value is None else {"norm_before_residual": value}
    draft = opened(write_tiny_draft(tmp_path, name, **options))
    assert draft.spec.norm_before_residual is bool(value)
    assert any("norm_before_residual" in c for c in draft.choices) is (value is None)


@pytest.mark.parametrize(
    ("name", "value", "feeds_back", "norms_head"),
    [
        ("speculators", None, False, True),
        ("speculators", True, True, True),
        ("eagle3", True, True, True),
        ("specforge", None, False, True),
        ("specforge", True, True, True),
        ("specforge", False, False, True),
        ("specvocab", None, False, True),
        ("specvocab", True, False, True),
        ("specvocab", False, False, False),
    ],
)
def test_norm_output_means_what_the_format_means(
    name: str, value: bool | None, feeds_back: bool, norms_head: bool, tmp_path: Path
) -> None:
    draft = opened(write_tiny_draft(tmp_path, name, norm_output=value))
    assert (draft.spec.feeds_back_normed, draft.spec.norms_head_input) == (feeds_back, norms_head)
    doubted = value is not None and name in ("specforge", "specvocab")
    assert any("September 2026" in choice for choice in draft.choices) is doubted


def test_norm_output_of_an_older_specforge_can_be_named(tmp_path: Path) -> None:
    """SpecForge 879 turned its meaning round; which one a draft was trained with is not in its file."""
    older = {"norm_output": "head input"}
    draft = opened(write_tiny_draft(tmp_path / "a", "specforge", norm_output=False, draftsmith=older))
    assert (draft.spec.feeds_back_normed, draft.spec.norms_head_input) == (False, False)
    assert any('taken as "the head\'s input is normed" (config.json says so)' in choice for choice in draft.choices)
    draft = opened(
        write_tiny_draft(tmp_path / "b", "specvocab", norm_output=True, draftsmith={"norm_output": "feeds back"})
    )
    assert (draft.spec.feeds_back_normed, draft.spec.norms_head_input) == (True, True)


def test_modelopt_may_leave_out_the_last_norm(tmp_path: Path) -> None:
    folder = write_tiny_draft(tmp_path, "modelopt", drop=["norm.weight"], eagle_config={"use_last_layernorm": False})
    assert opened(folder).spec.norms_head_input is False


def test_one_norm_before_fc_and_one_for_each_feature_exclude_one_another(tmp_path: Path) -> None:
    whole = {"input_norm.weight": np.full(3 * HIDDEN, 2, np.float32)}
    each = {f"fc_norm.{i}.weight": np.full(HIDDEN, i + 1, np.float32) for i in range(3)}
    first = opened(write_tiny_draft(tmp_path / "a", "speculators", extra=whole, norm_before_fc=True))
    assert first.spec.norm_before_fc and first.weights.read("fc_input_norm.weight")[0] == 2
    second = opened(write_tiny_draft(tmp_path / "b", "speculators", extra=each))
    assert second.spec.fc_norm and second.weights.read("fc_norm.2.weight")[0] == 3
    assert any("fc_norm" in choice for choice in second.choices)
    folder = write_tiny_draft(tmp_path / "c", "speculators", extra={**whole, **each}, norm_before_fc=True, fc_norm=True)
    with pytest.raises(CheckpointError, match="at most one of norm_before_fc and fc_norm"):
        open_draft(folder, TARGET)
    folder = write_tiny_draft(tmp_path / "d", "speculators", extra=whole, norm_before_fc=False)
    with pytest.raises(CheckpointError, match=r"`input_norm\.weight`"):
        open_draft(folder, TARGET)


def test_biases_and_an_own_embedding_are_read(tmp_path: Path) -> None:
    embedding = np.arange(VOCAB_SIZE * HIDDEN, dtype=np.float32).reshape(VOCAB_SIZE, HIDDEN)
    extra = {"fc.bias": np.ones(HIDDEN, np.float32), "embed_tokens.weight": embedding}
    extra |= {
        f"midlayer.self_attn.{p}_proj.bias": np.ones(n, np.float32)
        for p, n in zip("qkvo", (128, 64, 64, 64), strict=True)
    }
    draft = opened(write_tiny_draft(tmp_path, "eagle3", extra=extra, attention_bias=True))
    assert draft.spec.fc_bias and draft.spec.qkv_bias and draft.spec.o_bias and draft.spec.own_embedding
    np.testing.assert_array_equal(draft.weights.read("embed_tokens.weight"), embedding)


def test_an_absent_head_is_the_targets_never_a_random_one(tmp_path: Path) -> None:
    draft = opened(write_tiny_draft(tmp_path, "specforge", drop=["lm_head.weight"]))
    assert not draft.spec.own_head
    assert any("lm_head" in choice and "target" in choice for choice in draft.choices)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight"):
        draft.weights.read("lm_head.weight")


@pytest.mark.parametrize("name", FORMATS)
def test_a_missing_tensor_is_named_as_the_file_would_call_it(name: str, tmp_path: Path) -> None:
    prefix = "layers.0." if name in ("speculators", "modelopt") else "midlayer."
    for number, tensor in enumerate(["hidden_norm.weight", "self_attn.v_proj.weight", "mlp.up_proj.weight"]):
        folder = write_tiny_draft(tmp_path / str(number), name, drop=[prefix + tensor])
        with pytest.raises(CheckpointError) as caught:
            open_draft(folder, TARGET)
        assert f"`{prefix}{tensor}`" in str(caught.value)


def test_surplus_misshapen_and_infinite_tensors_are_named(tmp_path: Path) -> None:
    ones = np.ones(HEAD_DIM, np.float32)
    folder = write_tiny_draft(tmp_path / "a", "speculators", extra={"layers.0.self_attn.q_norm.weight": ones})
    with pytest.raises(CheckpointError, match=r"q_norm\.weight"):
        open_draft(folder, TARGET)
    folder = write_tiny_draft(tmp_path / "b", "specforge", extra={"midlayer.hidden_norm.weight": ones})
    with pytest.raises(CheckpointError, match=r"midlayer\.hidden_norm\.weight`: expected shape \[64\], found \[32\]"):
        open_draft(folder, TARGET)
    bad = np.full((HIDDEN, 3 * HIDDEN), np.nan, np.float32)
    draft = opened(write_tiny_draft(tmp_path / "c", "specforge", extra={"fc.weight": bad}))
    with pytest.raises(CheckpointError, match=r"`fc\.weight`: expected finite"):
        draft.weights.read("fc.weight")
    folder = write_tiny_draft(tmp_path / "d", "specforge", extra={"midlayer.self_attn.q_proj.bias": ones})
    with pytest.raises(CheckpointError, match=r"q_proj\.bias"):
        open_draft(folder, TARGET)


def test_harmless_tensors_are_listed(tmp_path: Path) -> None:
    extra = {"midlayer.self_attn.rotary_emb.inv_freq": np.ones(16, np.float32)}
    draft = opened(write_tiny_draft(tmp_path, "eagle3", extra=extra))
    assert any("rotary_emb.inv_freq" in choice for choice in draft.choices)


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("eagle3", {"soft_capping": 30.0}, "soft_capping"),
        ("eagle3", {"attn_logit_softcapping": 30.0}, "attn_logit_softcapping"),
        ("eagle3", {"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "rope_type"),
        ("speculators", {"transformer_layer_config": {"num_hidden_layers": 2}}, "num_hidden_layers"),
        ("specforge", {"num_aux_hidden_states": 2}, "num_aux_hidden_states"),
        ("specforge", {"parallel_drafting": True}, "parallel_drafting"),
        ("specforge", {"draftsmith": {"norm_output": "both"}}, "norm_output"),
        ("eagle3", {"hidden_act": "relu"}, "hidden_act"),
        ("eagle3", {"sliding_window": 16}, "sliding_window"),
        ("modelopt", {"eagle_config": {"use_mtp_layernorm": True}}, "use_mtp_layernorm"),
        ("modelopt", {"eagle_config": {"parallel_draft_step": 2}}, "parallel_draft_step"),
        ("speculators", {"speculators_model_type": "mtp"}, "speculators_model_type"),
        ("speculators", {"transformer_layer_config": {"qk_norm_kind": "l2"}}, "qk_norm_kind"),
        ("specvocab", {"draft_vocab_size": 100}, "draft_vocab_size"),
        ("specvocab", {"vocabulary_speculator": {"temperature": 2}}, "temperature"),
        ("specforge", {"draftsmith": {"target_sha256": "12"}}, "target_sha256"),
    ],
)
def test_settings_that_change_the_maths_are_refused_by_name(
    name: str, options: dict[str, Any], word: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=f"`{word}`"):
        open_draft(write_tiny_draft(tmp_path, name, **options), TARGET)


def test_rope_kinds_and_a_window_are_honoured(tmp_path: Path) -> None:
    scaling = {"type": "linear", "factor": 4.0}
    spec = opened(write_tiny_draft(tmp_path / "a", "specforge", rope_scaling=scaling)).spec
    assert (spec.rope.kind, spec.rope.factor) == ("linear", 4.0)
    layer = {"sliding_window": 16, "layer_types": ["sliding_attention"]}
    assert opened(write_tiny_draft(tmp_path / "b", "speculators", transformer_layer_config=layer)).spec.window == 16


def test_sizes_that_the_config_lacks_come_from_the_tensors_and_are_told(tmp_path: Path) -> None:
    keys = ["hidden_size", "intermediate_size", "num_key_value_heads", "vocab_size"]
    draft = opened(write_tiny_draft(tmp_path, "speculators", drop_keys=keys))
    plain = opened(write_tiny_draft(tmp_path / "plain", "speculators"))
    assert draft.spec == plain.spec
    assert all(any(choice.startswith(key) for choice in draft.choices) for key in keys)


def test_the_ranking_of_specvocab_is_read_under_each_spelling_and_as_int8(tmp_path: Path) -> None:
    stored = tiny_draft_weights("specvocab")
    draft = opened(write_tiny_draft(tmp_path / "plain", "specvocab"))
    assert draft.ranking is not None
    assert (draft.ranking.rank, draft.ranking.num_candidates) == (RANK, NUM_CANDIDATES)
    np.testing.assert_array_equal(draft.ranking.vocabulary, stored["vocabulary_speculator.vocab_proj.weight"])
    name = "vocabulary_speculator.vocab_proj.weight"
    codes = np.random.default_rng(1).integers(-127, 128, (VOCAB_SIZE, RANK)).astype(np.int8)
    scales = np.linspace(0.1, 2, VOCAB_SIZE).astype(np.float32)
    folder = write_tiny_draft(
        tmp_path / "codes", "specvocab", drop=[name], extra={f"{name}.codes": codes, f"{name}.scales": scales}
    )
    restored = opened(folder).ranking
    assert restored is not None
    np.testing.assert_array_equal(restored.vocabulary, codes.astype(np.float32) * scales[:, None])
    folder = write_tiny_draft(tmp_path / "half", "specvocab", drop=[name], extra={f"{name}.codes": codes})
    with pytest.raises(CheckpointError, match=r"\.codes and \.scales together"):
        open_draft(folder, TARGET)
    folder = write_tiny_draft(tmp_path / "none", "specvocab", drop=[name])
    with pytest.raises(CheckpointError, match=r"vocab_proj\.weight"):
        open_draft(folder, TARGET)


def test_our_own_section_names_the_target_and_the_embedding_scale(tmp_path: Path) -> None:
    section = {"target_sha256": "ab" * 32, "embed_scale": 8.0, "steps": 100}
    draft = opened(write_tiny_draft(tmp_path, "specvocab", draftsmith=section))
    assert (draft.target_sha256, draft.spec.embed_scale) == ("ab" * 32, 8.0)


def test_sharded_and_bin_drafts_read_the_same(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    whole = opened(write_tiny_draft(tmp_path / "whole", "eagle3", head_rows=3, extra=SUBSET))
    arrays = load_file(tmp_path / "whole" / "model.safetensors")
    sharded = write_tiny_draft(tmp_path / "sharded", "eagle3", head_rows=3)
    (sharded / "model.safetensors").unlink()
    files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    weight_map = {name: files[i % 2] for i, name in enumerate(arrays)}
    for file in files:
        save_file({n: a for n, a in arrays.items() if weight_map[n] == file}, sharded / file)
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    folder = write_tiny_draft(tmp_path / "bin", "eagle3", head_rows=3)
    (folder / "model.safetensors").unlink()
    torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, folder / "pytorch_model.bin")
    for other in (opened(sharded), opened(folder)):
        assert other.spec == whole.spec
        np.testing.assert_array_equal(other.target_ids, [4, 2, 299])  # type: ignore[arg-type]
        np.testing.assert_array_equal(other.weights.read("fc.weight"), arrays["fc.weight"])


SUBSET = {"d2t": np.array([4, 1, 297], np.int64), "t2d": np.isin(np.arange(VOCAB_SIZE), [2, 4, 299])}


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "specvocab"])
def test_without_draft_vocab_size_the_maps_rows_are_taken_and_told(name: str, tmp_path: Path) -> None:
    """EAGLE 214: an original folder's config may lack it, and says nothing else of being a draft."""
    folder = write_tiny_draft(tmp_path / "a", name, head_rows=3, extra=SUBSET, drop_keys=["draft_vocab_size"])
    draft = opened(folder)
    assert (draft.format, draft.spec.head_vocab_size) == (name, 3)
    np.testing.assert_array_equal(draft.target_ids, [4, 2, 299])  # type: ignore[arg-type]
    assert "draft_vocab_size: absent, 3 was taken from the shape of d2t." in draft.choices
    folder = write_tiny_draft(tmp_path / "b", name, head_rows=3, drop_keys=["draft_vocab_size"])
    with pytest.raises(CheckpointError, match="a map from the head's 3 rows to the target's 305 tokens"):
        open_draft(folder, TARGET)


def test_a_draft_of_eagle_2_is_called_so(tmp_path: Path) -> None:
    folder = write_tiny_draft(tmp_path, "eagle3", drop_keys=["draft_vocab_size"])
    arrays = {
        name.replace("midlayer.", "layers.0."): array[:, :HIDDEN] if name.endswith(("q_proj.weight",)) else array
        for name, array in load_file(folder / "model.safetensors").items()
        if "norm" not in name
    }
    arrays["fc.weight"] = np.ones((HIDDEN, 2 * HIDDEN), np.float32)
    save_file(arrays, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"`fc\.weight`.* a draft of EAGLE or EAGLE-2"):
        open_draft(folder, TARGET)


def test_a_number_of_layers_copied_from_the_target_is_told(tmp_path: Path) -> None:
    """As the config of EAGLE3-Vicuna1.3-13B has it: 40 layers, of which the file has one."""
    draft = opened(write_tiny_draft(tmp_path / "a", "eagle3", num_hidden_layers=40))
    assert any(choice.startswith("num_hidden_layers: the config says 40") for choice in draft.choices)
    second = {"layers.1.hidden_norm.weight": np.ones(HIDDEN, np.float32)}
    folder = write_tiny_draft(tmp_path / "b", "speculators", extra=second)
    with pytest.raises(CheckpointError, match=r"`layers\.1\.hidden_norm\.weight`: .* one layer"):
        open_draft(folder, TARGET)


def test_a_tied_head_in_the_config_leaves_a_stored_one_alone(tmp_path: Path) -> None:
    """SpecForge 139: configs copied from tied targets say so, beside a head of fewer rows."""
    options = {"tie_word_embeddings": True}
    draft = opened(write_tiny_draft(tmp_path / "a", "specforge", head_rows=3, extra=SUBSET, **options))
    assert draft.spec.own_head and not draft.spec.own_embedding
    assert draft.weights.read("lm_head.weight").shape == (3, HIDDEN)
    table = {"embed_tokens.weight": np.ones((VOCAB_SIZE, HIDDEN), np.float32)}
    folder = write_tiny_draft(
        tmp_path / "b", "specforge", head_rows=3, extra={**SUBSET, **table}, drop=["lm_head.weight"], **options
    )
    with pytest.raises(CheckpointError, match="`tie_word_embeddings`: expected false, for a head of 3 of 305 rows"):
        open_draft(folder, TARGET)


def test_a_draft_narrower_than_its_target_has_an_embedding_of_its_own(tmp_path: Path) -> None:
    """vLLM 18906: the draft of Llama-3.3-70B is 6,144 wide, its target 8,192."""
    wide = read_model_spec(tiny_config("llama", num_hidden_layers=12, hidden_size=128, head_dim=16), "config.json")
    extra = {
        "fc.weight": np.ones((HIDDEN, 3 * 128), np.float32),
        "embed_tokens.weight": np.ones((VOCAB_SIZE, HIDDEN), np.float32),
    }
    for folder, options in (("named", {"target_hidden_size": 128}), ("absent", {})):
        spec = opened(write_tiny_draft(tmp_path / folder, "eagle3", extra=extra, **options), wide).spec
        assert (spec.hidden_size, spec.target_hidden_size, spec.own_embedding) == (HIDDEN, 128, True)
    folder = write_tiny_draft(tmp_path / "wrong", "eagle3", extra=extra, target_hidden_size=HIDDEN)
    with pytest.raises(CheckpointError, match=r"`fc\.weight`: expected 3 features of 64 .* given one has 128"):
        open_draft(folder, wide)


@pytest.mark.parametrize("where", ["top", "parameters", "scaling"])
def test_theta_is_found_where_either_transformers_writes_it(where: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "top": {"rope_theta": 5e5},
        "parameters": {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        "scaling": {"rope_scaling": {"rope_type": "default", "rope_theta": 5e5}},
    }[where]
    drop = [] if where == "top" else ["rope_theta"]
    draft = opened(write_tiny_draft(tmp_path, "specforge", drop_keys=drop, **options))
    assert draft.spec.rope.theta == 5e5
    assert not any("rope_theta" in choice for choice in draft.choices)


@pytest.mark.parametrize("name", FORMATS)
def test_llama_3_scaling_reaches_the_draft(name: str, tmp_path: Path) -> None:
    """speculators 574 lost it on the way."""
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    layer = {"transformer_layer_config": {"rope_scaling": scaling}} if name == "speculators" else {}
    rope = opened(write_tiny_draft(tmp_path, name, **(layer or {"rope_scaling": scaling}))).spec.rope
    assert (rope.kind, rope.factor, rope.original_max_positions) == ("llama3", 8.0, 64)


def test_feature_counts_and_switches_of_newer_exporters_are_known(tmp_path: Path) -> None:
    draft = opened(write_tiny_draft(tmp_path, "specforge", num_aux_hidden_states=3, parallel_drafting=False))
    assert draft.spec.feature_layers == (2, 6, 9)


def test_a_language_model_as_draft_is_an_ordinary_checkpoint(tmp_path: Path) -> None:
    draft = open_draft(write_tiny_checkpoint(tmp_path, "llama"))
    assert isinstance(draft, Checkpoint)
    draft.close()
