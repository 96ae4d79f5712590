"""Calibration and held-out text: shipped documents or a user's file, as token sequences of one checkpoint."""

import json
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from draftsmith.model_repo.contract.errors import DraftsmithError
from draftsmith.model_repo.runtime.chat_template import ChatTemplate

from ..checkpoint.tokenizer import TokenizerFiles, load_tokenizer
from ..errors import UsageError

TokenIds = npt.NDArray[np.int64]
Shipped = Literal["calibration", "held_out"]
MAX_SEQUENCE = 512
"""Longer documents are cut into sequences of this many tokens, each starting anew."""


def read_shipped(name: Shipped) -> list[dict[str, Any]]:
    """The documents that come with draftsmith: ``{"text": ...}`` or ``{"messages": [...]}`` each."""
    text = resources.files(__package__).joinpath(f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def split_text(text: str) -> list[dict[str, Any]]:
    """A user's text: paragraphs gathered to documents of about 1,500 characters."""
    documents: list[str] = []
    for paragraph in text.split("\n\n"):
        if documents and len(documents[-1]) + len(paragraph) < 1500:
            documents[-1] += "\n\n" + paragraph
        else:
            documents.append(paragraph)
    return [{"text": document} for document in documents if document.strip()]


def encode_documents(
    documents: Iterable[dict[str, Any]], tokenizer_files: TokenizerFiles, max_tokens: int
) -> list[TokenIds]:
    """Token sequences as the model meets them when it serves: chats through its template, text after its first token.

    At most ``max_tokens`` in all. Raises ``UsageError`` where nothing is left to measure.
    """
    tokenizer = load_tokenizer(tokenizer_files.tokenizer_json, "calibration text")
    template = _template_of(tokenizer_files)
    sequences: list[TokenIds] = []
    room = max_tokens
    for document in documents:
        ids = _encode(document, tokenizer, template)
        for start in range(0, len(ids), MAX_SEQUENCE):
            piece = np.asarray(ids[start : start + min(MAX_SEQUENCE, room)], np.int64)
            if len(piece) > 1:
                sequences.append(piece)
                room -= len(piece)
    if not sequences:
        raise UsageError("calibration text", expected="at least two tokens", found="none")
    return sequences


def _template_of(files: TokenizerFiles) -> ChatTemplate | None:
    if files.chat_template is None:
        return None
    try:
        return ChatTemplate(files.chat_template, files.special_tokens)
    except DraftsmithError:
        return None  # packaging reports it; here plain text will do


def _encode(document: dict[str, Any], tokenizer: Any, template: ChatTemplate | None) -> Sequence[int]:
    messages = document.get("messages")
    if messages is None:
        return _ids(tokenizer, document["text"], add_special_tokens=True)
    if template is not None:
        try:
            text = template.render(messages, add_generation_prompt=False)
        except DraftsmithError:
            text = ""
        if text:
            return _ids(tokenizer, text, add_special_tokens=False)
    plain = "\n\n".join(str(message["content"]) for message in messages)
    return _ids(tokenizer, plain, add_special_tokens=True)


def _ids(tokenizer: Any, text: str, *, add_special_tokens: bool) -> Sequence[int]:
    return list(tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)
