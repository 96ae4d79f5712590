"""``build-engine inspect DRAFT`` says what it found, what it assumed and what only a target could tell."""

import json
from pathlib import Path

import pytest
from draftsmith.builder.cli import app

from tests.tiny_draft_formats import FORMATS, NUM_CANDIDATES, RANK, write_tiny_draft
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


def test_inspect_refuses_a_target_that_the_draft_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = write_tiny_draft(tmp_path / "draft", "specforge")
    target = write_tiny_checkpoint(tmp_path / "target", "llama", hidden_size=32)
    assert app.run(["inspect", str(draft), "--target", str(target)]) == 3
    assert "hidden size: expected 32" in capsys.readouterr().err
