"""A SentencePiece ``tokenizer.model`` file: the few protobuf fields that decide ids, read without a protobuf library.

Source: sentencepiece_model.proto (ModelProto: pieces 1, trainer_spec 2, normalizer_spec 3).
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from draftsmith.builder.errors import CheckpointError

from .sentencepiece import Pieces
from .token_table import NORMAL, TokenTable

MAX_FILE_BYTES = 200_000_000
BPE = 2
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
# Field numbers.
PIECES, TRAINER, NORMALIZER = 1, 2, 3
PIECE_TEXT, PIECE_SCORE, PIECE_KIND = 1, 2, 3
MODEL_TYPE, UNKNOWN_ID = 3, 40
CHARSMAP, DUMMY_PREFIX, REMOVE_SPACES = 2, 3, 4
Field = tuple[int, int | bytes]


def read_pieces(path: Path) -> Pieces:
    """The BPE pieces of a file.

    Raises ``CheckpointError`` for a corrupt file, a Unigram model, or a normalization other than identity.
    """
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise _error(path, f"at most {MAX_FILE_BYTES} bytes", str(size))
    tokens: list[str] = []
    scores: list[float] = []
    kinds: list[int] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    try:
        for number, value in _fields(path.read_bytes()):
            if number == PIECES:
                piece = dict(_fields(_bytes(value)))
                tokens.append(_bytes(piece[PIECE_TEXT]).decode("utf-8"))
                scores.append(struct.unpack("<f", _bytes(piece.get(PIECE_SCORE, bytes(4))))[0])
                kinds.append(int(piece.get(PIECE_KIND, NORMAL)))
            elif number == TRAINER:
                trainer = dict(_fields(_bytes(value)))
            elif number == NORMALIZER:
                normalizer = dict(_fields(_bytes(value)))
    except (ValueError, KeyError, IndexError, TypeError, struct.error) as error:
        raise _error(path, "a SentencePiece model", f"{type(error).__name__}: {error}"[:120]) from error
    if not tokens:
        raise _error(path, "a SentencePiece model", "no pieces")
    if trainer.get(MODEL_TYPE, 1) != BPE:
        raise _error(path, "a BPE model", f"model type {trainer.get(MODEL_TYPE, 1)!r}")
    if normalizer.get(CHARSMAP, b"") != b"" or normalizer.get(REMOVE_SPACES, 1) != 0:
        raise _error(path, "text taken as it is", "a normalization")
    unknown = trainer.get(UNKNOWN_ID, 0)
    if not isinstance(unknown, int) or not 0 <= unknown < len(tokens):
        raise _error(path, "an unknown token", f"id {unknown!r:.20}")
    prefix_space = normalizer.get(DUMMY_PREFIX, 1) != 0
    return Pieces(TokenTable(tokens, kinds), scores, unknown=unknown, prefix_space=prefix_space)


def _fields(data: bytes) -> Iterator[Field]:
    """Field number and value of one message; fixed-size values come as bytes."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == BYTES:
            length, position = _varint(data, position)
        elif wire in (FIXED32, FIXED64):
            length = 4 if wire == FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire}")
        if length > len(data) - position:
            raise ValueError("a field past the end")
        yield number, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise ValueError("a number of more than ten bytes")


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("a number where bytes are expected")
    return value


def _error(path: Path, expected: str, found: str) -> CheckpointError:
    return CheckpointError(
        path.name,
        expected=expected,
        found=found,
        where=str(path),
        action="Save the fast tokenizer (tokenizer.json) with transformers' `save_pretrained`.",
    )
