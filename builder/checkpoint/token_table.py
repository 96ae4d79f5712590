"""A vocabulary as GGUF and SentencePiece list it (strings and kinds by id), and the parts of JSON made from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# llama.cpp's and SentencePiece's numbers for a token's kind.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True, slots=True)
class TokenTable:
    """``tokens[id]`` and ``kinds[id]``."""

    tokens: list[str]
    kinds: list[int]

    def added_tokens(self, kinds: tuple[int, ...], *, normalized: bool = False) -> list[dict[str, Any]]:
        """`tokenizers` JSON of the tokens that are matched whole; control tokens are special (hidden in output).

        ``normalized``: user-defined ones are looked for in the normalized text, as SentencePiece does.
        """
        return [
            {
                "id": token_id,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": normalized and kind == USER_DEFINED,
                "special": kind != USER_DEFINED,
            }
            for token_id, (token, kind) in enumerate(zip(self.tokens, self.kinds, strict=True))
            if kind in kinds and token
        ]

    def post_processor(self, bos: int | None, eos: int | None) -> Mapping[str, Any] | None:
        """Puts ``bos`` before and ``eos`` after a text that is encoded with special tokens."""
        if bos is None and eos is None:
            return None
        ends = [{"SpecialToken": {"id": self.tokens[i], "type_id": 0}} if i is not None else None for i in (bos, eos)]
        single = [ends[0], {"Sequence": {"id": "A", "type_id": 0}}, ends[1]]
        pair = [*single, ends[0], {"Sequence": {"id": "B", "type_id": 1}}, ends[1]]
        used = {i for i in (bos, eos) if i is not None}
        return {
            "type": "TemplateProcessing",
            "single": [part for part in single if part],
            "pair": [part for part in pair if part],
            "special_tokens": {
                self.tokens[i]: {"id": self.tokens[i], "ids": [i], "tokens": [self.tokens[i]]} for i in sorted(used)
            },
        }
