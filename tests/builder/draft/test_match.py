"""A draft of another target is refused with both values and what to do; padding rows may differ (C14)."""

import json
from pathlib import Path
from typing import Any

import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.draft.match import check_match
from draftsmith.builder.draft.open import open_draft
from draftsmith.builder.errors import CheckpointError

from tests.tiny_draft_formats import write_tiny_draft
from tests.tiny_models import CONFIGS, write_tiny_checkpoint
from tests.tiny_tokenizer import VOCAB_SIZE, tokenizer_values

SHA = "ab" * 32


def match(draft_folder: Path, target_folder: Path, *, knows_target: bool = True) -> None:
    with open_checkpoint(target_folder) as target:
        draft = open_draft(draft_folder, target.spec if knows_target else None)
        try:
            check_match(draft, target, SHA)
        finally:
            draft.weights.close()


def rename_token(folder: Path, old: str, new: str) -> None:
    values = tokenizer_values()
    vocab = values["model"]["vocab"]
    vocab[new] = vocab.pop(old)
    values["model"]["merges"] = [m for m in values["model"]["merges"] if "".join(m) != old and old not in m]
    (folder / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")


def test_a_draft_of_its_own_target_matches(tmp_path: Path) -> None:
    target = write_tiny_checkpoint(tmp_path / "target", "llama")
    for number, section in enumerate([None, {"target_sha256": SHA}]):
        match(write_tiny_draft(tmp_path / str(number), "specvocab", draftsmith=section), target)


@pytest.mark.parametrize(
    ("target_options", "draft_options", "words"),
    [
        ({"hidden_size": 32}, {}, ["hidden size: expected 32", "found 64"]),
        ({"vocab_size": 310}, {}, ["vocabulary size: expected 310", "found 305"]),
        ({}, {"draftsmith": {"target_sha256": "cd" * 32}}, ["checksum", SHA, "cd" * 32]),
    ],
)
def test_a_draft_of_another_target_is_refused_with_both_values(
    target_options: dict[str, Any], draft_options: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    target = write_tiny_checkpoint(tmp_path / "target", "llama", **target_options)
    with pytest.raises(CheckpointError) as caught:
        match(write_tiny_draft(tmp_path / "draft", "specvocab", **draft_options), target)
    assert all(word in str(caught.value) for word in [*words, "train-draft", "--draft none"])


def test_a_draft_that_was_opened_without_its_target_cannot_be_matched(tmp_path: Path) -> None:
    target = write_tiny_checkpoint(tmp_path / "target", "llama")
    with pytest.raises(CheckpointError, match="feature layers"):
        match(write_tiny_draft(tmp_path / "draft", "eagle3"), target, knows_target=False)


@pytest.mark.parametrize("rows", [VOCAB_SIZE, VOCAB_SIZE + 1, VOCAB_SIZE + 40])
def test_padding_rows_of_a_language_model_may_differ(rows: int, tmp_path: Path) -> None:
    assert CONFIGS["llama"]["vocab_size"] == VOCAB_SIZE + 5
    target = write_tiny_checkpoint(tmp_path / "target", "llama")
    match(write_tiny_checkpoint(tmp_path / "draft", "qwen3", vocab_size=rows), target)


def test_different_token_strings_are_refused_naming_the_first(tmp_path: Path) -> None:
    target = write_tiny_checkpoint(tmp_path / "target", "llama")
    draft = write_tiny_checkpoint(tmp_path / "draft", "llama")
    rename_token(draft, "Ġof", "Ġxy")
    with pytest.raises(CheckpointError) as caught:
        match(draft, target)
    token_id = tokenizer_values()["model"]["vocab"]["Ġof"]
    assert f"token {token_id}: expected 'Ġof', that of target, found 'Ġxy'" in str(caught.value)


def test_a_language_model_without_rows_for_the_targets_tokens_is_refused(tmp_path: Path) -> None:
    target = write_tiny_checkpoint(tmp_path / "target", "llama")
    draft = write_tiny_checkpoint(tmp_path / "draft", "llama", vocab_size=VOCAB_SIZE - 1)
    values = tokenizer_values()
    last = max(values["model"]["vocab"], key=values["model"]["vocab"].__getitem__)
    del values["model"]["vocab"][last]
    values["model"]["merges"] = values["model"]["merges"][:-1]
    (draft / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(CheckpointError, match=f"embedding rows: expected at least {VOCAB_SIZE}.*{VOCAB_SIZE - 1}"):
        match(draft, target)
