"""Calibration text: shipped documents, a user's text, and their token sequences."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.errors import UsageError
from draftsmith.builder.quantize.text import MAX_SEQUENCE, encode_documents, read_shipped, split_text
from tokenizers import Tokenizer


def test_held_out_text_shares_no_sentence_with_calibration() -> None:
    def sentences(name) -> set[str]:
        joined = " ".join(str(document) for document in read_shipped(name))
        return {part.strip() for part in joined.split(".") if len(part) > 40}

    assert len(sentences("held_out")) > 20
    assert not sentences("held_out") & sentences("calibration")


def test_chats_go_through_the_template_and_text_does_not(tiny_checkpoint: Callable[..., Path]) -> None:
    with open_checkpoint(tiny_checkpoint("llama")) as checkpoint:
        files = checkpoint.tokenizer
    documents = [{"messages": [{"role": "user", "content": "hello"}]}]
    tokenizer = Tokenizer.from_str(files.tokenizer_json)
    (with_template,) = encode_documents(documents, files, 100)
    (without,) = encode_documents(documents, replace(files, chat_template=None), 100)
    (plain,) = encode_documents([{"text": "hello"}], files, 100)
    assert list(without) == list(plain) == tokenizer.encode("hello").ids
    assert len(with_template) > len(plain)


def test_a_template_that_refuses_falls_back_to_the_text(tiny_checkpoint: Callable[..., Path]) -> None:
    with open_checkpoint(tiny_checkpoint("llama")) as checkpoint:
        files = replace(checkpoint.tokenizer, chat_template="{{ raise_exception('no') }}")
    found = encode_documents([{"messages": [{"role": "user", "content": "hello"}]}], files, 100)
    assert list(found[0]) == list(encode_documents([{"text": "hello"}], files, 100)[0])


def test_long_text_is_cut_and_thinned_evenly(tiny_checkpoint: Callable[..., Path]) -> None:
    with open_checkpoint(tiny_checkpoint("llama")) as checkpoint:
        files = checkpoint.tokenizer
    text = "\n\n".join(f"Paragraph {index} has a few words of its own. " * 12 for index in range(60))
    sequences = encode_documents(split_text(text), files, 2000)
    assert max(map(len, sequences)) <= MAX_SEQUENCE
    assert 1000 <= sum(map(len, sequences)) <= 2000
    decoded = [Tokenizer.from_str(files.tokenizer_json).decode(list(s)) for s in sequences]
    assert any("Paragraph 0 " in text for text in decoded)
    assert any("Paragraph 5" in text for text in decoded)


def test_text_without_tokens_is_refused(tiny_checkpoint: Callable[..., Path]) -> None:
    with (
        open_checkpoint(tiny_checkpoint("llama")) as checkpoint,
        pytest.raises(UsageError, match="calibration text: expected at least two tokens"),
    ):
        encode_documents([{"text": ""}], checkpoint.tokenizer, 100)
