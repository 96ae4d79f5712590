"""Byte-level BPE in plain Python: cut by regular expressions, then join the best pair until none is left."""

from collections.abc import Mapping, Sequence

import regex

from tests.tiny_tokenizer import byte_characters

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# The patterns that llama.cpp applies one after the other for each name (llama-vocab.cpp).
PATTERNS = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "default": [r"[\p{P}\$\+<=>\^\~\|]+", GPT2.removesuffix(r"|\s+"), r"\p{N}+", "[0-9][0-9][0-9]"],
}


def encode(
    text: str, vocab: Mapping[str, int], merges: Sequence[str], patterns: Sequence[str], *, whole_words: bool = False
) -> list[int]:
    """Ids of a text without special tokens; ``whole_words`` takes a piece that is a token as it is."""
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
    characters = byte_characters()
    ids: list[int] = []
    for piece in cut(text, patterns):
        symbols = [characters[byte] for byte in piece.encode()]
        if whole_words and "".join(symbols) in vocab:
            symbols = ["".join(symbols)]
        while len(symbols) > 1:
            best = min(range(len(symbols) - 1), key=lambda i: ranks.get((symbols[i], symbols[i + 1]), 10**9))
            if (symbols[best], symbols[best + 1]) not in ranks:
                break
            symbols[best : best + 2] = [symbols[best] + symbols[best + 1]]
        ids += [vocab[symbol] for symbol in symbols]
    return ids


def cut(text: str, patterns: Sequence[str]) -> list[str]:
    """Matches and the text between them, each pattern applied to the pieces of the one before."""
    pieces = [text]
    for pattern in patterns:
        pieces = [part for piece in pieces for part in _split(piece, pattern)]
    return pieces


def _split(text: str, pattern: str) -> list[str]:
    parts: list[str] = []
    end = 0
    for match in regex.finditer(pattern, text):
        parts += [text[end : match.start()], match[0]]
        end = match.end()
    return [part for part in [*parts, text[end:]] if part]
