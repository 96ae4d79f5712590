"""GGUF files: the same weights and spec as the Hugging Face folder of the same model."""

import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from draftsmith.builder.checkpoint import gguf_weights
from draftsmith.builder.checkpoint.gguf_header import GgufTensor
from draftsmith.builder.checkpoint.gguf_weights import read_values
from draftsmith.builder.checkpoint.mapped_file import MappedFile
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.errors import CheckpointError
from draftsmith.builder.spec.target import ModelSpec, RopeSpec

from tests.tiny_gguf import write_tiny_gguf
from tests.tiny_models import ARCHITECTURES, tiny_config, tiny_weights, write_tiny_checkpoint


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_gguf_file_gives_the_folders_spec_and_weights(tmp_path: Path, architecture: str) -> None:
    same = {"query_pre_attn_scalar": 32} if architecture == "gemma3" else {}  # GGUF has no key for it
    folder = write_tiny_checkpoint(tmp_path / "hf", architecture, **same)
    file = write_tiny_gguf(tmp_path / "tiny.gguf", architecture)
    with open_checkpoint(folder) as expected, open_checkpoint(file) as found:
        assert found.spec == expected.spec
        assert found.generation.end_ids == expected.generation.end_ids
        for name in expected.weights.tensors:
            tolerance = 1e-6 if name.endswith("norm.weight") else 0  # Gemma's norms are stored with 1 added
            np.testing.assert_allclose(found.weights.read(name), expected.weights.read(name), rtol=0, atol=tolerance)


@pytest.mark.parametrize("quantization", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_quantized_matrices_read_as_ggufs_own_values(tmp_path: Path, quantization: str) -> None:
    file = write_tiny_gguf(tmp_path / "tiny.gguf", "qwen3", quantization=quantization)
    kind = gguf.GGMLQuantizationType[quantization]
    with open_checkpoint(file) as checkpoint:
        for name, values in tiny_weights(tiny_config("qwen3")).items():
            expected = gguf.dequantize(gguf.quantize(values, kind), kind) if values.ndim == 2 else values
            np.testing.assert_array_equal(checkpoint.weights.read(name), expected)


@pytest.mark.parametrize("name", ["Q4_K", "Q5_K", "Q6_K", "Q5_0", "Q2_K", "IQ4_NL"])
def test_block_types_read_in_steps_as_ggufs_own_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kind = gguf.GGMLQuantizationType[name]
    elements, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    raw = np.random.default_rng(0).integers(0, 60, (7, 3 * block_bytes), np.uint8)  # small bytes: finite scales
    (tmp_path / "blocks").write_bytes(bytes(64) + raw.tobytes())
    tensor = GgufTensor("w", (7, 3 * elements), int(kind), 64, raw.nbytes)
    monkeypatch.setattr(gguf_weights, "CHUNK_VALUES", 2 * 3 * elements)  # two rows a step, one in the last
    file = MappedFile(tmp_path / "blocks")
    np.testing.assert_array_equal(read_values(file, tensor, gguf), gguf.dequantize(raw, kind))
    file.close()


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    return str(caught.value)


def spec_of(path: Path, architecture: str, **options: Any) -> ModelSpec:
    with open_checkpoint(write_tiny_gguf(path / "tiny.gguf", architecture, **options)) as checkpoint:
        return checkpoint.spec


def test_biases_are_seen_and_unpermuted(tmp_path: Path) -> None:
    options = {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False}
    with open_checkpoint(write_tiny_gguf(tmp_path / "x.gguf", "llama", **options)) as checkpoint:
        assert (checkpoint.spec.qkv_bias, checkpoint.spec.mlp_bias, checkpoint.spec.tied_head) == (True, True, False)
        for name, values in tiny_weights(tiny_config("llama", **options)).items():
            np.testing.assert_array_equal(checkpoint.weights.read(name), values)


def test_head_size_that_is_not_hidden_over_heads(tmp_path: Path) -> None:
    assert spec_of(tmp_path, "llama", head_dim=32).head_dim == 32


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"rope.scaling.type": "none"}, RopeSpec(kind="default", theta=10_000.0)),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, RopeSpec(kind="linear", theta=1e4, factor=4.0)),
        ({"rope.scale_linear": 2.0}, RopeSpec(kind="linear", theta=1e4, factor=2.0)),
        (
            {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.original_context_length": 128,
                "rope.scaling.attn_factor": 0.5,
            },
            RopeSpec(
                kind="yarn",
                theta=1e4,
                factor=4.0,
                original_max_positions=128,
                beta_fast=32.0,
                beta_slow=1.0,
                attention_factor=0.5 * (1 + 0.1 * math.log(4)),
                truncate=True,
            ),
        ),
    ],
)
def test_rope_scaling_keys(tmp_path: Path, metadata: dict[str, Any], expected: RopeSpec) -> None:
    keys = {f"llama.{key}": value for key, value in metadata.items()}
    assert spec_of(tmp_path, "llama", metadata=keys).rope == expected


def test_sliding_window_keys(tmp_path: Path) -> None:
    assert set(spec_of(tmp_path / "a", "llama", metadata={"llama.attention.sliding_window": 7}).layer_kinds) == {
        "sliding"
    }
    spec = spec_of(tmp_path / "b", "gemma3", num_hidden_layers=6, sliding_window_pattern=3)
    assert spec.layer_kinds == ("sliding", "sliding", "full") * 2


def test_gemma_without_a_pattern_has_every_sixth_layer_full(tmp_path: Path) -> None:
    metadata = {"gemma3.attention.sliding_window_pattern": None}
    spec = spec_of(tmp_path, "gemma3", num_hidden_layers=7, metadata=metadata)
    assert spec.layer_kinds == ("sliding",) * 5 + ("full", "sliding")


def test_the_27b_gemma_scales_attention_by_hidden_over_heads(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "gemma3", num_hidden_layers=62, hidden_size=32, intermediate_size=32, vocab_size=300)
    assert spec.attention_scale == (32 // 4) ** -0.5


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"llama.expert_count": 8}, "GGUF key `llama.expert_count`: expected none, or 0, found 8"),
        ({"llama.attn_logit_softcapping": 50.0}, "GGUF key `llama.attn_logit_softcapping`"),
        ({"llama.attention.causal": False}, "GGUF key `llama.attention.causal`"),
        ({"llama.made.up": 3}, "GGUF key `llama.made.up`: expected no setting that is not known, found 3"),
        (
            {"llama.rope.dimension_count": 8},
            "GGUF key `llama.rope.dimension_count`: expected the head size 16, found 8",
        ),
        ({"llama.attention.value_length": 32}, "GGUF key `llama.attention.value_length`"),
        ({"llama.attention.head_count": [4, 4, 2, 4]}, "GGUF key `llama.attention.head_count`: expected one number"),
        ({"llama.block_count": None}, "GGUF key `llama.block_count`: expected one number, found None"),
        ({"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 2.0}, "found 'longrope'"),
        ({"llama.rope.scaling.type": "yarn"}, "GGUF key `llama.rope.scaling.factor`"),
        ({"llama.block_count": 3}, "tensor `model.layers.3."),
        ({"llama.block_count": 5}, "tensor `model.layers.4.input_layernorm.weight`"),
        ({"split.count": 3}, "GGUF file: expected the whole model, found one of 3 parts"),
        ({"general.type": "adapter"}, "general.type: expected model, found 'adapter'"),
        ({"general.architecture": "mamba"}, "general.architecture: expected one of llama, "),
    ],
)
def test_what_is_not_supported_or_does_not_fit_is_named(tmp_path: Path, metadata: dict[str, Any], text: str) -> None:
    assert text in refusal(write_tiny_gguf(tmp_path / "x.gguf", "llama", metadata=metadata))


def test_the_same_number_for_every_layer_may_be_a_list(tmp_path: Path) -> None:
    metadata = {"llama.attention.head_count_kv": [2, 2, 2, 2]}
    assert spec_of(tmp_path, "llama", metadata=metadata).num_kv_heads == 2


def test_surplus_tensors_are_named(tmp_path: Path) -> None:
    extra = {"blk.0.attn_sinks.weight": np.zeros(4, np.float32)}
    assert "tensor `blk.0.attn_sinks.weight`" in refusal(write_tiny_gguf(tmp_path / "x.gguf", "llama", extra=extra))


def test_llama3_rope_factors_become_a_rope_scaling(tmp_path: Path) -> None:
    config = {"head_dim": 64, "rope_theta": 500_000.0, "max_position_embeddings": 131_072}
    factors = {"rope_freqs.weight": published_factors(32.0, 500_000.0, 64)}
    assert spec_of(tmp_path, "llama", extra=factors, **config).rope == RopeSpec(
        kind="llama3",
        theta=500_000.0,
        factor=32.0,
        original_max_positions=8192,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
    )


def published_factors(factor: float, theta: float, head_dim: int) -> npt.NDArray[np.float32]:
    """Llama 3's rule as published: short wavelengths stay, long ones are divided, a blend between."""
    factors = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * math.pi * theta ** (i / head_dim)
        if wavelength < 8192 / 4:
            factors.append(1.0)
        elif wavelength > 8192:
            factors.append(factor)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def test_folders_with_one_gguf_file_open_it(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "one.gguf", "llama")
    open_checkpoint(tmp_path).close()
    write_tiny_gguf(tmp_path / "two.gguf", "llama")
    assert "GGUF file: expected one, found 2: one.gguf, two.gguf" in refusal(tmp_path)
