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
LEAST_SEQUENCE = 96
"""Documents are not cut shorter than this to make room for others."""


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
    pieces: list[TokenIds] = []
    for document in documents:
        ids = np.asarray(_encode(document, tokenizer, template), np.int64)
        pieces += [ids[start : start + MAX_SEQUENCE] for start in range(0, len(ids), MAX_SEQUENCE)]
    pieces = [piece for piece in pieces if len(piece) > 1]
    if not pieces:
        raise UsageError("calibration text", expected="at least two tokens", found="none")
    return _take_evenly(pieces, max_tokens)


def _take_evenly(pieces: list[TokenIds], max_tokens: int) -> list[TokenIds]:
    """Something of every piece while pieces stay useful, else pieces from all over the text; in a mixed order."""
    if sum(map(len, pieces)) > max_tokens:
        cap = MAX_SEQUENCE
        while cap > LEAST_SEQUENCE and sum(min(len(piece), cap) for piece in pieces) > max_tokens:
            cap -= 8
        room = max(1, max_tokens // cap)
        step = max(1, -(-len(pieces) // room)) if sum(min(len(p), cap) for p in pieces) > max_tokens else 1
        pieces = [piece[:cap] for piece in pieces[::step]]
    order = np.random.default_rng(0).permutation(len(pieces))
    return [pieces[index] for index in order]


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
