"""``build-engine inspect DRAFT`` says what it found, what it assumed and what only a target could tell."""

import json
import re
from pathlib import Path

import pytest
from draftsmith.builder.cli import app

from tests.tiny_draft_formats import FORMATS, HEAD_DIM, KV_HEADS, NUM_CANDIDATES, RANK, write_tiny_draft
from tests.tiny_models import write_tiny_checkpoint


@pytest.mark.parametrize("name", FORMATS)
def test_inspect_names_format_choices_and_what_it_cannot_know(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_tiny_draft(tmp_path, name)
    assert app.run(["inspect", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["kind"], facts["format"]) == ("draft", name)
    assert facts["spec"]["feature_layers"] == []
    assert any("which layers" in sentence for sentence in facts["unknown"])
    assert facts["ranking"] == (
        {"rank": RANK, "num_candidates": NUM_CANDIDATES, "is_exact": True} if name == "specvocab" else None
    )
    assert app.run(["inspect", str(folder)]) == 0
    words = capsys.readouterr().out
    assert facts["format_title"] in words
    assert all(sentence in words for sentence in [*facts["choices"], *facts["unknown"]])


def test_inspect_with_a_target_settles_what_was_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draft = write_tiny_draft(tmp_path / "draft", "specforge")
    target = write_tiny_checkpoint(tmp_path / "target", "llama")
    assert app.run(["inspect", str(draft), "--target", str(target), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["spec"]["feature_layers"] == [2, 2, 1]
    assert facts["unknown"] == []


@pytest.mark.parametrize("order", ["draft and target", "target and draft"])
def test_inspect_counts_the_drafts_cache_on_a_line_of_its_own(
    order: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = str(write_tiny_draft(tmp_path / "draft", "specforge"))
    target = str(write_tiny_checkpoint(tmp_path / "target", "llama"))
    pair = [draft, "--target", target] if order.startswith("draft") else [target, "--draft", draft]
    assert app.run(["inspect", *pair, "--max-batch", "3", "--max-length", "100", "--json"]) == 0
    estimates = json.loads(capsys.readouterr().out)["estimates"]
    assert app.run(["inspect", target, "--max-batch", "3", "--max-length", "100", "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)["estimates"]
    slot = 100 * 2 * KV_HEADS * HEAD_DIM * 4  # tokens, keys and values, float32
    for with_draft, without in zip(estimates["precisions"], alone["precisions"], strict=True):
        assert with_draft["draft_cache_bytes_per_slot"] == slot
        more = with_draft["serve_bytes"] - without["serve_bytes"]
        assert more == 3 * slot + with_draft["draft_weight_bytes"]
    assert app.run(["inspect", *pair, "--max-batch", "3", "--max-length", "100"]) == 0
    words = capsys.readouterr().out
    assert "estimates, draft included, for 3 slots of 100 tokens" in words
    assert re.search(rf"of which draft's cache +{3 * slot / 1e6:.1f} MB", words)
    assert app.run(["inspect", draft, "--target", target, "--draft", draft]) == 2
    assert "--draft: expected a target's" in capsys.readouterr().err


def test_inspect_refuses_a_target_that_the_draft_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = write_tiny_draft(tmp_path / "draft", "specforge")
    target = write_tiny_checkpoint(tmp_path / "target", "llama", hidden_size=32)
    assert app.run(["inspect", str(draft), "--target", str(target)]) == 3
    assert "hidden size: expected 32" in capsys.readouterr().err
