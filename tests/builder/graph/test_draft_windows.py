"""Tree levels of a draft with a window: distances are counted in positions, in every precision."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.draft.plan import DraftPlan

from tests.builder.graph.test_draft_graph import TOLERANCES, Oracle, build, grow, make_text
from tests.engine_cases import ancestors
from tests.tiny_drafts import make_draft


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("window", [2, 3, 6])
def test_levels_of_a_tree_see_what_is_near(precision, window, tiny_checkpoint, tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("llama")
    parents, levels = [-1, -1, 0, 1, 0], [0, 2, 5]
    with open_checkpoint(checkpoint) as target:
        draft = make_draft(target.spec, window=window)
        tokens, features = make_text(draft, 7 + 5)
        oracle = Oracle(draft, target, precision)
        expected = grow(oracle, (tokens, features), slice(0, 7), tokens[7:12], parents)
    steps = build(checkpoint, tmp_path / "engine", DraftPlan(draft=draft, head="full", name="tiny"), precision)
    out = steps.step([tokens[:7]], [0], features=features[None, :7])
    hidden = np.repeat(out["hidden_out"][:, 6:7], 2, axis=1)
    seen, found = ancestors(parents), []
    for first, last in pairwise(levels):
        block = [tokens[7 + first : 7 + last]]
        out = steps.step(block, [7 + first], hidden=hidden, mask=seen[first:last, :last])
        found.append(steps.logits(out, draft.spec.vocab_size)[0])
        hidden = out["hidden_out"][:, [0, 1, 0]]
    logits = np.concatenate(found)
    error = np.abs(np.where(np.isfinite(logits), logits - expected, 0)).max() / np.abs(expected).max()
    assert error < TOLERANCES[precision]
