"""Texts for fitting and measuring rankings: token sequences, each with the task that it is an example of.

A document's task is its ``task`` or ``category`` where the file has labels; else shipped documents are told apart by
number and kind ("chat 1", "text 3"), and a user's plain text is one task.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..checkpoint.tokenizer import TokenizerFiles
from ..errors import UsageError
from ..quantize.text import encode_documents, split_text

TokenIds = npt.NDArray[np.int64]
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Passage:
    """``token_ids`` int64 [n] of one sequence that starts anew."""

    task: str
    token_ids: TokenIds


def read_documents(path: Path) -> list[Document]:
    """A user's text: a ``.jsonl`` file of ``text``, ``messages`` or ``turns`` (Spec-Bench), else plain paragraphs.

    Raises ``UsageError`` where a line is none of these, or the file is not UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("--text", expected="a UTF-8 file", found=str(error), where=str(path)) from error
    if path.suffix != ".jsonl":
        return [{"task": "text", **document} for document in split_text(text)]
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    return [_parse_line(line, f"{path}, line {number}") for number, line in lines]


def name_tasks(documents: Sequence[Document]) -> list[str]:
    """The task of each document."""
    counts = {"chat": 0, "text": 0}
    names = []
    for document in documents:
        label = document.get("task", document.get("category"))
        kind = "chat" if "messages" in document else "text"
        counts[kind] += 1
        names.append(str(label) if label is not None else f"{kind} {counts[kind]}")
    return names


def encode_passages(documents: Sequence[Document], files: TokenizerFiles, max_tokens: int) -> list[Passage]:
    """Token sequences as the model meets them when it serves, at most ``max_tokens`` in all, something of every task.

    Raises ``UsageError`` where nothing is left.
    """
    by_task: dict[str, list[Document]] = {}
    for name, document in zip(name_tasks(documents), documents, strict=True):
        by_task.setdefault(name, []).append(document)
    if not by_task:
        raise UsageError("text", expected="at least one document", found="none")
    share = max(2, max_tokens // len(by_task))
    return [
        Passage(name, sequence)
        for name, members in by_task.items()
        for sequence in encode_documents(members, files, share)
    ]


def _parse_line(line: str, where: str) -> Document:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise UsageError("--text", expected="a JSON object a line", found=str(error), where=where) from error
    if not isinstance(values, Mapping):
        raise UsageError("--text", expected="a JSON object a line", found=type(values).__name__, where=where)
    task = values.get("task", values.get("category"))
    label = {} if task is None else {"task": str(task)}
    text, messages, turns = values.get("text"), values.get("messages"), values.get("turns")
    if isinstance(text, str):
        return {"text": text, **label}
    if _is_chat(messages):
        return {"messages": messages, **label}
    if isinstance(turns, list) and turns and all(isinstance(turn, str) for turn in turns):
        return {"messages": [{"role": "user", "content": turns[0]}], **label}
    raise UsageError("--text", expected="`text`, `messages` or `turns`", found=", ".join(values) or "{}", where=where)


def _is_chat(messages: object) -> bool:
    return (
        isinstance(messages, list)
        and len(messages) > 0
        and all(isinstance(message, Mapping) and {"role", "content"} <= set(message) for message in messages)
    )
