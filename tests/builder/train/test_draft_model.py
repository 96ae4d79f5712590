"""The draft in torch: the unrolled training pass is the NumPy draft run step by step with a cache."""

from pathlib import Path

import numpy as np
import pytest
import torch
from draftsmith.builder.draft.reference import ReferenceDraft
from draftsmith.builder.train.draft_model import DraftModel, draft_spec

from tests.builder.train.tiny_target import open_tiny_target


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_training_time_test_is_step_by_step_inference(tmp_path: Path, architecture: str) -> None:
    checkpoint, target = open_tiny_target(tmp_path, architecture)
    ids = torch.from_numpy(np.random.default_rng(1).integers(3, checkpoint.spec.vocab_size - 6, (2, 30)))
    model = _perturbed(DraftModel(draft_spec(checkpoint.spec, intermediate_size=48), rank=4, max_length=64, seed=0))
    output = target.run(ids[:, :-1])
    names = {f"{name}.weight": value for name, value in [*model.linears.items(), *model.norms.items()]}
    reference = ReferenceDraft(
        model.spec,
        lambda name: names[name].detach().numpy(),
        embedding=target.embedding.numpy(),
        dtype=np.float64,
    )

    with torch.no_grad():
        unrolled = model.unroll(target.embed(ids[:, 1:]), output.features, 5)

    for row in range(2):
        chain = reference.chain(ids[row, 1:].numpy(), output.features[row].numpy(), 5)
        for step, expected in enumerate(chain):
            np.testing.assert_allclose(unrolled[step][row, step:].numpy(), expected, atol=2e-5)


def test_a_fresh_draft_starts_at_the_last_feature(tmp_path: Path) -> None:
    checkpoint, target = open_tiny_target(tmp_path, "llama")
    spec = draft_spec(checkpoint.spec, intermediate_size=48)
    weight = DraftModel(spec, rank=4, max_length=64, seed=0).linears["fc"].detach()

    assert weight.shape == (64, 192)
    assert float((weight[:, 128:] - torch.eye(64)).abs().max()) < 0.01
    assert float(weight[:, :128].abs().max()) < 0.01
    assert target.spec.default_feature_layers == spec.feature_layers


def _perturbed(model: DraftModel) -> DraftModel:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return model


def test_a_draft_starts_with_a_hidden_state_of_size_one(tmp_path: Path) -> None:
    checkpoint, target = open_tiny_target(tmp_path, "llama")
    model = DraftModel(draft_spec(checkpoint.spec, intermediate_size=48), rank=4, max_length=64, seed=0)
    features = 400 * torch.randn(50, 192, generator=torch.Generator().manual_seed(0))

    model.start_from_target(target.final_norm, 400.0)

    hidden = features @ model.linears["fc"].detach().T
    assert float(hidden.square().mean().sqrt()) == pytest.approx(1, abs=0.1)
    assert torch.equal(model.norms["norm"], target.final_norm)
