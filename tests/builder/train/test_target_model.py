"""The target in torch: transformers is the oracle of whole sequences, whole sequences are that of cached steps."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.builder.train.tiny_target import open_tiny_target

transformers = pytest.importorskip("transformers")
ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "gemma3")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logits_and_features_are_those_of_transformers(tmp_path: Path, architecture: str) -> None:
    checkpoint, target = open_tiny_target(tmp_path, architecture)
    ids = _random_ids(checkpoint.spec.vocab_size)
    oracle = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()

    output = target.run(ids)
    with torch.no_grad():
        expected = oracle(ids, output_hidden_states=True)

    features = torch.cat([expected.hidden_states[i] for i in checkpoint.spec.default_feature_layers], dim=-1)
    torch.testing.assert_close(target.logits(output.hidden), expected.logits, atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(output.features, features, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_cached_steps_give_the_logits_of_whole_sequences(tmp_path: Path, architecture: str) -> None:
    checkpoint, target = open_tiny_target(tmp_path, architecture)
    ids = _random_ids(checkpoint.spec.vocab_size)
    cache = target.new_cache(len(ids), 64)

    steps = [target.step(ids[:, i], torch.tensor([i]), cache, 64) for i in range(ids.shape[1])]

    torch.testing.assert_close(torch.stack(steps, 1), target.logits(target.run(ids).hidden), atol=2e-4, rtol=1e-4)


def _random_ids(vocab_size: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(3, vocab_size - 6, (2, 40)))
