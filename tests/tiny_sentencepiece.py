"""SentencePiece model files (protobuf by hand), so that the real library can be the oracle for made vocabularies."""

import struct
from collections.abc import Sequence

BPE = 2
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def model_proto(
    pieces: Sequence[tuple[str, float, int]],
    *,
    model_type: int = BPE,
    prefix_space: bool,
    special_ids: tuple[int, int, int, int],
    charsmap: bytes = b"",
    remove_spaces: bool = False,
) -> bytes:
    """A serialized ModelProto of (piece, score, type); ``special_ids``: unknown, bos, eos, pad (-1 for none)."""
    trainer = _varint_field(3, model_type) + _varint_field(4, len(pieces)) + _varint_field(35, 1)
    for field, value in zip((40, 41, 42, 43), special_ids, strict=True):
        trainer += _varint_field(field, value)
    normalizer = _bytes_field(1, b"identity") + _bytes_field(2, charsmap) + _varint_field(3, int(prefix_space))
    normalizer += _varint_field(4, int(remove_spaces)) + _varint_field(5, 1)
    parts = [_bytes_field(1, _piece(*piece)) for piece in pieces]
    return b"".join(parts) + _bytes_field(2, trainer) + _bytes_field(3, normalizer)


def _piece(text: str, score: float, kind: int) -> bytes:
    return _bytes_field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + _varint_field(3, kind)


def _bytes_field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint_field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value % 2**64)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
