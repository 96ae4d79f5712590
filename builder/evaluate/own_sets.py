"""Prompts that come with draftsmith, where drafts are known to be weaker (V10): Chinese, Arabic, long contexts."""

import random
import re
from collections.abc import Callable
from importlib import resources

from ..quantize.text import read_shipped
from .questions import Question, parse_questions
from .tasks import LONG_CONTEXT

LANGUAGES_FILE = "languages.jsonl"
_REQUESTS = (
    "Summarize document {number} in two or three sentences.",
    "What is document {number} about? Name its main points.",
    "Quote the first sentence of document {number}, then explain it in your own words.",
    "Write a short title for document {number} and say why it fits.",
    "Which document is most like document {number}? Explain your choice.",
    "Rewrite document {number} for a ten-year-old.",
)


def read_languages() -> list[Question]:
    """Ten questions in Chinese and ten in Arabic."""
    text = resources.files(__package__).joinpath(LANGUAGES_FILE).read_text(encoding="utf-8")
    return parse_questions(text, LANGUAGES_FILE)


def write_long_questions(count_tokens: Callable[[str], int], num_tokens: int) -> list[Question]:
    """Questions on numbered documents, each of at least ``num_tokens`` tokens (by less than a document more).

    The documents are the shipped texts in an order that is each question's own; when they are used up they come again
    with their sentences in another order, so that no passage is longer than a sentence twice the same.
    """
    documents = [_plain(document) for name in ("held_out", "calibration") for document in read_shipped(name)]
    return [_write_question(index, documents, count_tokens, num_tokens) for index in range(len(_REQUESTS))]


def _write_question(index: int, documents: list[str], count_tokens: Callable[[str], int], num_tokens: int) -> Question:
    order = random.Random(index)  # noqa: S311 - varied text, always the same
    pieces: list[str] = []
    total = 0
    queue: list[str] = []
    while total < num_tokens:
        if not queue:
            is_first = not pieces
            queue = [text if is_first else _reorder(text, order) for text in order.sample(documents, len(documents))]
        pieces.append(f"Document {len(pieces) + 1}\n\n{queue.pop()}")
        total += count_tokens(pieces[-1])
    request = _REQUESTS[index].format(number=max(1, len(pieces) // 2))
    turn = "\n\n".join([f"Read these {len(pieces)} documents.", *pieces, request])
    return Question(question_id=f"long-{index + 1}", category=LONG_CONTEXT, turns=(turn,))


def _plain(document: dict[str, object]) -> str:
    messages = document.get("messages")
    if isinstance(messages, list):
        return "\n\n".join(str(message["content"]) for message in messages)
    return str(document["text"])


def _reorder(text: str, order: random.Random) -> str:
    sentences = [piece for piece in re.split(r"(?<=[.!?;:])\s+|\n+", text) if piece]
    order.shuffle(sentences)
    return " ".join(sentences)
