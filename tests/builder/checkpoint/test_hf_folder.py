"""Hugging Face folders: shards, indexes, tied heads, strict tensors, multimodal names."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.errors import CheckpointError

from tests.tiny_models import (
    ARCHITECTURES,
    tiny_config,
    tiny_weights,
    write_safetensors,
    write_tiny_checkpoint,
    write_tiny_tokenizer,
)

Write = Callable[..., Path]


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(folder)
    return str(caught.value)


def edit_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "mistral"])
def test_every_family_opens_and_reads_what_was_written(tiny_checkpoint: Write, architecture: str) -> None:
    folder = tiny_checkpoint(architecture)
    with open_checkpoint(folder) as checkpoint:
        written = tiny_weights(tiny_config(architecture))
        assert set(checkpoint.weights.tensors) == set(written)
        for name, values in written.items():
            np.testing.assert_array_equal(checkpoint.weights.read(name), values)


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_half_types_become_float32(tiny_checkpoint: Write, dtype: str) -> None:
    with open_checkpoint(tiny_checkpoint("llama", dtype=dtype)) as checkpoint:
        values = checkpoint.weights.read("model.norm.weight")
        written = tiny_weights(tiny_config("llama"))["model.norm.weight"]
        assert values.dtype == np.float32
        if dtype == "F16":
            np.testing.assert_array_equal(values, written.astype(np.float16).astype(np.float32))
        np.testing.assert_allclose(values, written, rtol=2**-8)
        assert checkpoint.weights.tensors["model.norm.weight"].dtype == dtype


def test_bfloat16_bits_are_the_upper_half_of_float32(tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path, "llama", dtype="BF16", num_hidden_layers=1)
    with open_checkpoint(folder) as checkpoint:
        bits = checkpoint.weights.read("model.norm.weight").view(np.uint32)
        assert not (bits & 0xFFFF).any()


def test_read_arrays_outlive_the_checkpoint(tiny_checkpoint: Write) -> None:
    with open_checkpoint(tiny_checkpoint("llama")) as checkpoint:
        values = checkpoint.weights.read("model.norm.weight")
    values += 1  # owned, writable, still mapped nowhere
    assert np.isfinite(values).all()


def test_three_shards_read_as_one_file(tiny_checkpoint: Write) -> None:
    with open_checkpoint(tiny_checkpoint("qwen3", shards=3)) as checkpoint:
        for name, values in tiny_weights(tiny_config("qwen3")).items():
            np.testing.assert_array_equal(checkpoint.weights.read(name), values)


def test_missing_shard_is_named(tiny_checkpoint: Write) -> None:
    folder = tiny_checkpoint("qwen3", shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert "shard `model-00002-of-00003.safetensors`: expected all 3 files of the index" in refusal(folder)


@pytest.mark.parametrize("file", ["../evil.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "a\\b", 7, None])
def test_index_that_points_outside_the_folder_is_refused(tiny_checkpoint: Write, file: object) -> None:
    folder = tiny_checkpoint("llama", shards=2)
    index = folder / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    edit_json(index, weight_map={**weight_map, "model.norm.weight": file})
    assert "file of tensor `model.norm.weight`: expected a plain file name" in refusal(folder)


def test_tensor_in_another_shard_than_the_index_says_is_refused(tiny_checkpoint: Write) -> None:
    folder = tiny_checkpoint("llama", shards=2)
    index = folder / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    other = next(f for f in weight_map.values() if f != weight_map["model.norm.weight"])
    edit_json(index, weight_map={**weight_map, "model.norm.weight": other})
    assert "tensor `model.norm.weight`" in refusal(folder)


def test_tied_head_needs_no_tensor_and_an_untied_one_is_named(tmp_path: Path) -> None:
    tied = write_tiny_checkpoint(tmp_path / "tied", "llama", tie_word_embeddings=True)
    with open_checkpoint(tied) as checkpoint:
        assert checkpoint.spec.tied_head
    broken = write_tiny_checkpoint(tmp_path / "x", "llama", tie_word_embeddings=False, drop=["lm_head.weight"])
    text = refusal(broken)
    assert text.startswith("tensor `lm_head.weight`: expected it in the checkpoint with shape [305, 64], found none")
    assert "tie_word_embeddings: false" in text


def test_copy_of_a_tied_head_and_rotary_buffers_are_tolerated(tiny_checkpoint: Write) -> None:
    extra = {
        "lm_head.weight": np.zeros((305, 64), np.float32),
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(8, np.float32),
    }
    open_checkpoint(tiny_checkpoint("llama", extra=extra)).close()


def test_missing_surplus_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    missing = write_tiny_checkpoint(tmp_path / "a", "llama", drop=[name])
    assert f"tensor `{name}`: expected it in the checkpoint with shape [96, 64]" in refusal(missing)
    extra = {"model.layers.1.mlp.surprise.weight": np.zeros(3, np.float32)}
    surplus = write_tiny_checkpoint(tmp_path / "b", "llama", extra=extra)
    assert "tensor `model.layers.1.mlp.surprise.weight`: expected no tensor" in refusal(surplus)
    wrong = write_tiny_checkpoint(tmp_path / "c", "llama", extra={name: np.zeros((64, 96), np.float32)})
    assert f"tensor `{name}`: expected shape [96, 64], found [64, 96]" in refusal(wrong)


def test_surplus_bias_is_refused_not_dropped(tiny_checkpoint: Write) -> None:
    extra = {"model.layers.0.self_attn.q_proj.bias": np.ones(64, np.float32)}
    assert "q_proj.bias" in refusal(tiny_checkpoint("llama", extra=extra))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused_when_read(tiny_checkpoint: Write, value: float) -> None:
    values = np.ones(64, np.float32)
    values[3] = value
    folder = tiny_checkpoint("llama", extra={"model.norm.weight": values})
    text = "tensor `model.norm.weight`: expected finite numbers, found 1 of 64"
    with open_checkpoint(folder) as checkpoint, pytest.raises(CheckpointError, match=text):
        checkpoint.weights.read("model.norm.weight")


def test_unknown_tensor_name_is_an_error(tiny_checkpoint: Write) -> None:
    with open_checkpoint(tiny_checkpoint("llama")) as checkpoint, pytest.raises(CheckpointError, match="tensor `nope`"):
        checkpoint.weights.read("nope")


@pytest.mark.parametrize(
    ("text_prefix", "other"),
    [("language_model.model.", "vision_tower.x.weight"), ("model.language_model.", "model.vision_tower.x.weight")],
)
def test_text_part_of_multimodal_gemma_is_read(tmp_path: Path, text_prefix: str, other: str) -> None:
    config = tiny_config("gemma3")
    arrays = tiny_weights(config)
    stored = {text_prefix + name.removeprefix("model."): values for name, values in arrays.items()}
    write_safetensors(tmp_path / "model.safetensors", {**stored, other: np.zeros(3, np.float32)})
    whole = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": config}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    write_tiny_tokenizer(tmp_path)
    with open_checkpoint(tmp_path) as checkpoint:
        assert set(checkpoint.weights.tensors) == set(arrays)
        np.testing.assert_array_equal(checkpoint.weights.read("model.norm.weight"), arrays["model.norm.weight"])


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    assert "expected a Hugging Face folder or a GGUF file, found nothing" in refusal(tmp_path / "none")
    assert "config.json: expected the file, found none" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert "config.json: expected JSON" in refusal(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(tiny_config("llama")))
    assert "weights: expected model.safetensors or " in refusal(tmp_path)


def test_a_weights_file_alone_points_to_its_folder(tiny_checkpoint: Write) -> None:
    assert "Name the folder instead." in refusal(tiny_checkpoint("llama") / "model.safetensors")
