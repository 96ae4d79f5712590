"""GGUF files: the same weights and spec as the Hugging Face folder of the same model."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint

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
