"""SentencePiece BPE pieces (Llama 2, Mistral, Gemma) -> `tokenizers` JSON that gives the same ids.

SentencePiece joins the neighbours whose joined piece scores highest. BPE merges in `tokenizers` are ranked pairs; so
the pairs are all ways to cut each piece into two pieces, ranked by the piece's score.
"""

from dataclasses import dataclass
from typing import Any

from .token_table import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, TokenTable
from .tokenizer import dump_tokenizer

SPACE = "▁"


@dataclass(frozen=True, slots=True)
class Pieces:
    """A SentencePiece model: pieces, scores by id, the unknown id, and whether a space is put before a text."""

    table: TokenTable
    scores: list[float]
    unknown: int
    prefix_space: bool


def sentencepiece_json(pieces: Pieces, *, bos: int | None, eos: int | None) -> str:
    """JSON of the tokenizer, bytes as fallback for characters that are no pieces."""
    table = pieces.table
    vocab = {token: i for i, token in reversed(list(enumerate(table.tokens)))}
    return dump_tokenizer(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": table.added_tokens((CONTROL, USER_DEFINED, UNKNOWN), normalized=not pieces.prefix_space),
            "normalizer": _normalizer(pieces.prefix_space),
            "pre_tokenizer": None,
            "post_processor": table.post_processor(bos, eos),
            "decoder": _decoder(pieces.prefix_space),
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": table.tokens[pieces.unknown],
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": True,
                "byte_fallback": BYTE in table.kinds,
                "ignore_merges": False,
                "vocab": vocab,
                "merges": ranked_merges(pieces),
            },
        }
    )


def ranked_merges(pieces: Pieces) -> list[tuple[str, str]]:
    """All pairs of pieces that make a piece, best score first; ties by the ids of the parts."""
    kinds = pieces.table.kinds
    usable = (NORMAL, USER_DEFINED, UNUSED)
    ids = {token: i for i, token in enumerate(pieces.table.tokens) if kinds[i] in usable}
    found: list[tuple[float, int, int, int, str, str]] = []
    for token, token_id in ids.items():
        if kinds[token_id] == UNUSED:
            continue
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                found.append((-pieces.scores[token_id], token_id, ids[left], ids[right], left, right))
    found.sort()
    return [(left, right) for *_, left, right in found]


def _normalizer(prefix_space: bool) -> dict[str, Any]:
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    if not prefix_space:
        return replace
    return {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, replace]}


def _decoder(prefix_space: bool) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix_space:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}
