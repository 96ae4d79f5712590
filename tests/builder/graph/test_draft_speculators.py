"""Draft graphs against speculators' own EAGLE-3 model (torch, float32): chains, and entries that are written anew.

speculators trains all entries at once: in step s, entry i reads the first step's columns up to i and its own chain's.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.draft.checkpoint import DraftCheckpoint
from draftsmith.builder.draft.open import open_draft
from draftsmith.builder.draft.plan import DraftPlan

from tests.builder.graph.transformers_oracle import assert_close
from tests.engine_cases import FloatArray, build_engine
from tests.tiny_draft_formats import HIDDEN, VOCAB_SIZE, write_tiny_draft
from tests.tiny_drafts import DraftSteps

STEPS, LENGTH = 3, 12
CONFIG: dict[str, Any] = {
    "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
    "speculators_config": {
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": STEPS}],
        "default_proposal_method": "greedy",
        "verifier": {"name_or_path": None, "architectures": []},
    },
}
SWITCHES: dict[str, dict[str, Any]] = {
    "plain": {"norm_before_residual": False},
    "norm_before_residual": {"norm_before_residual": True},
    "norm_before_fc": {"norm_before_fc": True, "norm_before_residual": True},
    "fc_norm": {"fc_norm": True, "norm_before_residual": False},
    "norm_output": {"norm_output": True, "norm_before_residual": False},
}


def speculators_logits(folder: Path, embedding: FloatArray, tokens: list[int], features: FloatArray) -> FloatArray:
    """[STEPS, LENGTH, V]: entry i of step s, fed with the text's tokens behind it."""
    torch = pytest.importorskip("torch")
    try:
        from speculators.models.eagle3.core import Eagle3DraftModel
    except ImportError as error:
        pytest.skip(f"needs speculators: {error}")
    from safetensors.torch import load_file

    config = Eagle3DraftModel.config_class.from_pretrained(folder)
    config.transformer_layer_config._attn_implementation = "eager"
    model = Eagle3DraftModel(config).eval()
    stored = load_file(str(folder / "model.safetensors"))
    missing, unexpected = model.load_state_dict(stored, strict=False)
    assert set(missing) <= {"embed_tokens.weight", "verifier_norm.weight", "verifier_lm_head.weight"}
    assert not unexpected
    model.embed_tokens.weight.data = torch.from_numpy(embedding)
    seen: list[Any] = []
    model.lm_head.register_forward_hook(lambda _module, _inputs, output: seen.append(output[0].numpy()))
    with torch.no_grad():
        model(
            hidden_states=torch.from_numpy(features)[None],
            input_ids=torch.tensor([tokens]),
            document_ids=torch.zeros(1, len(tokens), dtype=torch.long),
            ttt_steps=STEPS,
        )
    return np.stack(seen)


@pytest.mark.parametrize("switches", SWITCHES)
@pytest.mark.filterwarnings("ignore")
def test_chains_and_rewritten_entries_are_those_of_speculators(
    switches: str, tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    random = np.random.default_rng(3)
    extra = {}
    if switches == "norm_before_fc":
        extra["input_norm.weight"] = random.normal(1, 0.2, 3 * HIDDEN).astype(np.float32)
    if switches == "fc_norm":
        extra = {f"fc_norm.{i}.weight": random.normal(1, 0.2, HIDDEN).astype(np.float32) for i in range(3)}
    checkpoint = tiny_checkpoint("llama")
    folder = write_tiny_draft(tmp_path / "draft", "speculators", extra=extra, **CONFIG, **SWITCHES[switches])
    tokens = random.integers(3, 200, LENGTH).tolist()  # behind each entry's position
    features = random.normal(0, 1, (LENGTH, 3 * HIDDEN)).astype(np.float32)
    with open_checkpoint(checkpoint) as target:
        draft = open_draft(folder, target.spec)
        assert isinstance(draft, DraftCheckpoint)
        embedding = target.weights.read("model.embed_tokens.weight")
    built = build_engine(checkpoint, tmp_path / "engine", draft=DraftPlan(draft=draft, head="full", name="tiny"))
    assert built.draft is not None
    expected = speculators_logits(folder, embedding, tokens, features)

    steps, known = DraftSteps(tmp_path / "engine", built.draft), 0
    for length in (4, 5, 8):  # the second call continues after one accepted token, the third after three
        outputs = steps.step([tokens[known:length]], [known], features=features[None, known:length])
        found = [steps.logits(outputs, VOCAB_SIZE)[0, -1]]
        for number in range(1, STEPS):
            entry = length - 1 + number
            outputs = steps.step([[tokens[entry]]], [entry], hidden=outputs["hidden_out"][:, -1:])
            found.append(steps.logits(outputs, VOCAB_SIZE)[0, -1])
        known = length

        assert_close(np.stack(found), expected[:, length - 1])
