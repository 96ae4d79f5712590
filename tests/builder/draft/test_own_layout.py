"""What ``builder/train`` writes is what the loader reads: the same spec, weights and ranking."""

import json
from pathlib import Path

import numpy as np
import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.draft.checkpoint import DraftCheckpoint
from draftsmith.builder.draft.match import check_match
from draftsmith.builder.draft.open import open_draft
from safetensors.numpy import save_file

from tests.tiny_models import write_tiny_checkpoint

torch = pytest.importorskip("torch")

from draftsmith.builder.train.draft_model import DraftModel, draft_spec  # noqa: E402
from draftsmith.builder.train.export import draft_config, export_tensors  # noqa: E402

SHA = "12" * 32


class Settings:
    """The two settings that the config names."""

    rank, num_candidates = 4, 16


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma3"])
def test_an_exported_draft_is_opened_as_it_was(architecture: str, tmp_path: Path) -> None:
    with open_checkpoint(write_tiny_checkpoint(tmp_path / "target", architecture)) as target:
        model = DraftModel(draft_spec(target.spec, intermediate_size=48), rank=4, max_length=64, seed=0)
        with torch.no_grad():
            model.ranking_vocabulary.normal_()
        folder = tmp_path / "draft"
        folder.mkdir()
        config = draft_config(model.spec, Settings(), target_sha256=SHA, facts={"steps": 3})
        (folder / "config.json").write_text(json.dumps(config))
        save_file(export_tensors(model), folder / "model.safetensors")

        draft = open_draft(folder, target.spec)

        assert isinstance(draft, DraftCheckpoint) and draft.ranking is not None
        assert draft.spec == model.spec
        check_match(draft, target, SHA)
        for name, value in {**model.linears, **model.norms}.items():
            np.testing.assert_allclose(draft.weights.read(f"{name}.weight"), value.detach().numpy(), atol=2e-3)
        exact = model.ranking_vocabulary.detach().numpy()
        largest = np.abs(exact).max(axis=1, keepdims=True)
        assert np.all(np.abs(draft.ranking.vocabulary - exact) <= largest / 254 + 1e-6)
