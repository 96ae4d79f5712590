"""GGUF headers byte by byte, for files that no honest writer makes."""

import struct
from collections.abc import Sequence
from pathlib import Path

from draftsmith.builder.checkpoint.gguf_header import GgufHeader, read_header
from draftsmith.builder.checkpoint.gguf_weights import block_sizes
from draftsmith.builder.checkpoint.mapped_file import MappedFile

U32, F32_VALUE, STRING, ARRAY = 4, 6, 8, 9
F32, Q8_0 = 0, 8


def text(value: str | bytes, length: int | None = None) -> bytes:
    """A length-prefixed string; ``length`` may lie."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data) if length is None else length) + data


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    """One metadata entry."""
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: str, dimensions: Sequence[int], kind: int = F32, offset: int = 0) -> bytes:
    """One tensor entry; dimensions fastest first."""
    return text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, offset)


def header(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    num_tensors: int | None = None,
    num_keys: int | None = None,
) -> bytes:
    """A header, padded to 32 bytes; counts may lie."""
    counts = (len(tensors) if num_tensors is None else num_tensors, len(keys) if num_keys is None else num_keys)
    data = magic + struct.pack("<IQQ", version, *counts) + b"".join(keys) + b"".join(tensors)
    return data + bytes(-len(data) % 32)


def read(path: Path, data: bytes) -> GgufHeader:
    """Write ``data`` and read its header."""
    path.write_bytes(data)
    file = MappedFile(path)
    try:
        return read_header(file, block_sizes())
    finally:
        file.close()
