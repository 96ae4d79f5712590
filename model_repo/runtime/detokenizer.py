"""Token ids to text in pieces: the joined pieces are what the tokenizer makes of all ids at once.

``TokenPieces`` turns one id into bytes by the rules of a tokenizer.json's decoder: byte-level BPE (a table of 256
characters) or SentencePiece (U+2581 is a space, ``<0x0A>`` is a byte, a space at the very start is dropped where the
file says so). ``Detokenizer`` joins them into characters and never lets half of one out.
"""

import codecs
import json
import re
from typing import Any, Protocol

from draftsmith.model_repo.contract.errors import ManifestError

from .sessions.base import Int32Array

_SPACE_MARK = "\u2581"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_PRIME_LEN = 8
EACH_BYTE = "draftsmith.each_byte"


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for every byte that is no character (what the byte fallback decoder does)."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error(EACH_BYTE, _replace_each_byte)


class Vocabulary(Protocol):
    """The part of ``tokenizers.Tokenizer`` that decoding needs."""

    @property
    def decoder(self) -> Any: ...
    def id_to_token(self, token_id: int) -> str | None: ...
    def get_added_tokens_decoder(self) -> dict[int, Any]: ...


class TokenPieces:
    """The bytes of each token, found when first asked for. Shared by all requests of an engine.

    Raises:
        ManifestError: the decoder is of a kind that is not known here.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._special = {i for i, token in vocabulary.get_added_tokens_decoder().items() if token.special}
        self._pieces: dict[int, bytes] = {}
        kinds = _flatten(json.loads(vocabulary.decoder.__getstate__()) if vocabulary.decoder is not None else None)
        names = {k["type"] for k in kinds}
        self.is_byte_level = "ByteLevel" in names
        if not (names <= {"ByteLevel"} or names <= _SENTENCE_PIECE) or not names:
            raise ManifestError(
                "tokenizer decoder",
                expected="ByteLevel, or Replace, ByteFallback, Fuse, Strip, Metaspace",
                found=", ".join(sorted(names)) or "none",
                where="tokenizer.json",
            )
        self._has_byte_tokens = "ByteFallback" in names
        self.strips_start = any(_strips_start(k) for k in kinds)
        self.errors = EACH_BYTE if self._has_byte_tokens else "replace"
        self._table = _byte_level_table() if self.is_byte_level else {}

    def find(self, token_id: int) -> bytes:
        """The bytes of a token; none for special tokens and ids without one."""
        piece = self._pieces.get(token_id)
        if piece is None:
            piece = self._pieces[token_id] = self._make(token_id)
        return piece

    def _make(self, token_id: int) -> bytes:
        token = self._vocabulary.id_to_token(token_id)
        if token is None or token_id in self._special:
            return b""
        if self.is_byte_level:
            if all(char in self._table for char in token):
                return bytes(self._table[char] for char in token)
            return token.encode()
        byte = _BYTE_TOKEN.fullmatch(token) if self._has_byte_tokens else None
        return bytes([int(byte[1], 16)]) if byte else token.replace(_SPACE_MARK, " ").encode()


class Detokenizer:
    """The text of one request's output, piece by piece."""

    def __init__(self, pieces: TokenPieces, prompt_ids: Int32Array) -> None:
        """``prompt_ids`` int32 [n]: a character that the prompt ends in the middle of is completed by the output, and a
        space is dropped only where no text at all comes before it."""
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")(pieces.errors)
        for token in prompt_ids[-_PRIME_LEN:].tolist():
            self._decoder.decode(pieces.find(token))
        self._at_start = pieces.strips_start and not any(pieces.find(t) for t in prompt_ids.tolist())

    def push(self, token_id: int) -> str:
        """The characters that this token completes, possibly none."""
        text = self._decoder.decode(self._pieces.find(token_id))
        return self._strip(text) if self._at_start and text else text

    def flush(self) -> str:
        """What is left of an unfinished character, as U+FFFD."""
        text = self._decoder.decode(b"", final=True)
        return self._strip(text) if self._at_start and text else text

    def _strip(self, text: str) -> str:
        self._at_start = False
        return text.removeprefix(" ")


_SENTENCE_PIECE = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}


def _flatten(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder["type"] == "Sequence":
        return [part for inner in decoder["decoders"] for part in _flatten(inner)]
    return [decoder]


def _strips_start(decoder: dict[str, Any]) -> bool:
    if decoder["type"] == "Strip":
        return bool(decoder["content"] == " " and decoder["start"] > 0)
    return bool(decoder["type"] == "Metaspace" and decoder.get("prepend_scheme", "always") != "never")


def _byte_level_table() -> dict[str, int]:
    """Character -> byte of byte-level BPE (GPT-2): printable Latin-1 is itself, the other bytes follow from 256 on."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in shown}
    hidden = [byte for byte in range(256) if chr(byte) not in table]
    table.update({chr(256 + index): byte for index, byte in enumerate(hidden)})
    return table
