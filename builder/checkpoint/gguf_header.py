"""The header of a GGUF file: metadata and tensor places, every count, length and offset checked against the file.

Layout (version 2 and 3, little-endian): magic, version, number of tensors, number of keys; keys with typed values;
tensor names, dimensions (fastest first), types, offsets; padding; the bytes of the tensors. Source: ggml's gguf.md.
"""

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from draftsmith.builder.errors import CheckpointError

from .mapped_file import MappedFile

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_KEYS = 65_536
MAX_TENSORS = 1_000_000
MAX_DIMENSIONS = 4
MAX_KEY_BYTES = 65_535
MAX_NESTING = 2
STRING, ARRAY, BOOL = 8, 9, 7
SCALARS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", BOOL: "<u1"}
SCALARS |= {10: "<u8", 11: "<i8", 12: "<f8"}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor as listed: ``shape`` rows first, ``kind`` ggml's type number, ``begin`` from the file's start."""

    name: str
    shape: tuple[int, ...]
    kind: int
    begin: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """``metadata`` values: int, float, bool, str, a list of str, or a NumPy array of numbers."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]


def read_header(file: MappedFile, block_sizes: Mapping[int, tuple[int, int]]) -> GgufHeader:
    """Parse and check. ``block_sizes``: ggml type number -> (elements, bytes) of one block.

    Raises ``CheckpointError`` for anything that does not lie within the file or is not of the format.
    """
    cursor = _Cursor(file)
    if cursor.take(4) != MAGIC:
        raise cursor.error("magic", "GGUF", "something else", "This is not a GGUF file.")
    version = cursor.number("<u4")
    if version not in VERSIONS:
        raise cursor.error("version", " or ".join(map(str, VERSIONS)), str(version), "Convert the file again.")
    num_tensors = cursor.count("number of tensors", MAX_TENSORS, least_bytes=24)
    num_keys = cursor.count("number of keys", MAX_KEYS, least_bytes=13)
    metadata: dict[str, Any] = {}
    for _ in range(num_keys):
        key = cursor.text("key", MAX_KEY_BYTES)
        if key in metadata:
            raise cursor.error(f"key `{key}`", "once", "twice")
        metadata[key] = cursor.value(cursor.number("<u4"), key)
    listed = [_read_tensor(cursor, block_sizes) for _ in range(num_tensors)]
    return GgufHeader(metadata, _place_tensors(cursor, listed, metadata))


def _read_tensor(cursor: "_Cursor", block_sizes: Mapping[int, tuple[int, int]]) -> GgufTensor:
    name = cursor.text("tensor name", MAX_KEY_BYTES)
    num_dimensions = cursor.number("<u4")
    if not 1 <= num_dimensions <= MAX_DIMENSIONS:
        raise cursor.error(f"tensor `{name}`", f"1 to {MAX_DIMENSIONS} dimensions", str(num_dimensions))
    dimensions = [cursor.number("<u8") for _ in range(num_dimensions)]
    kind, offset = cursor.number("<u4"), cursor.number("<u8")
    if kind not in block_sizes:
        raise cursor.error(f"tensor `{name}`", "a known type", f"number {kind}", "Not supported.")
    elements, block_bytes = block_sizes[kind]
    if not all(0 < size < 2**48 for size in dimensions) or dimensions[0] % elements:
        raise cursor.error(f"tensor `{name}`", f"dimensions above 0, rows in blocks of {elements}", str(dimensions))
    num_bytes = math.prod(dimensions) // elements * block_bytes
    return GgufTensor(name, tuple(reversed(dimensions)), kind, offset, num_bytes)


def _place_tensors(cursor: "_Cursor", listed: list[GgufTensor], metadata: Mapping[str, Any]) -> dict[str, GgufTensor]:
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 2**20 or alignment & (alignment - 1):
        raise cursor.error("general.alignment", "a power of two", repr(alignment))
    start = -(-cursor.position // alignment) * alignment
    placed: dict[str, GgufTensor] = {}
    end = 0
    for tensor in sorted(listed, key=lambda t: t.begin):
        name = tensor.name
        if name in placed:
            raise cursor.error(f"tensor `{name}`", "once", "twice")
        if tensor.begin % alignment or tensor.begin < end:
            raise cursor.error(f"tensor `{name}`", f"an aligned offset from {end}", f"{tensor.begin}", "It overlaps.")
        end = tensor.begin + tensor.num_bytes
        if start + end > cursor.file.size:
            found = f"byte {start + end}"
            expected = f"to end within the file's {cursor.file.size} bytes"
            raise cursor.error(f"tensor `{name}`", expected, found, "The file is truncated: download it again.")
        placed[name] = GgufTensor(name, tensor.shape, tensor.kind, start + tensor.begin, tensor.num_bytes)
    return {tensor.name: placed[tensor.name] for tensor in listed}


class _Cursor:
    """A position in the header; every step is checked against the end of the file."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.position = 0

    def take(self, num_bytes: int) -> bytes:
        data = self.file.read_bytes(self.position, num_bytes)
        self.position += num_bytes
        return data

    def number(self, kind: str) -> int:
        dtype = np.dtype(kind)
        return int(np.frombuffer(self.take(dtype.itemsize), dtype)[0])

    def count(self, what: str, most: int, *, least_bytes: int) -> int:
        """A count whose items take at least ``least_bytes`` each of what is left of the file."""
        value = self.number("<u8")
        limit = min(most, (self.file.size - self.position) // least_bytes)
        if value > limit:
            raise self.error(what, f"at most {limit}", str(value), "The file is truncated or corrupt.")
        return value

    def text(self, what: str, most: int) -> str:
        length = self.count(f"length of {what}", most, least_bytes=1)
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error(what, "UTF-8", str(error)) from error

    def value(self, kind: int, key: str, depth: int = 0) -> Any:
        if kind == STRING:
            return self.text(f"value of `{key}`", self.file.size)
        if kind == ARRAY:
            return self._array(key, depth)
        if kind not in SCALARS:
            raise self.error(f"type of `{key}`", "a GGUF value type", str(kind))
        dtype = np.dtype(SCALARS[kind])
        value = np.frombuffer(self.take(dtype.itemsize), dtype)[0].item()
        return bool(value) if kind == BOOL else value

    def _array(self, key: str, depth: int) -> Any:
        kind = self.number("<u4")
        if kind in SCALARS:
            dtype = np.dtype(SCALARS[kind])
            count = self.count(f"length of `{key}`", 2**40, least_bytes=dtype.itemsize)
            return np.frombuffer(self.take(count * dtype.itemsize), dtype)
        count = self.count(f"length of `{key}`", 2**40, least_bytes=8)
        if kind == STRING:
            return self._texts(key, count)
        if kind != ARRAY or depth >= MAX_NESTING:
            raise self.error(f"element type of `{key}`", "a GGUF value type", str(kind))
        return [self._array(key, depth + 1) for _ in range(count)]

    def _texts(self, key: str, count: int) -> list[str]:
        """Many strings; the loop is tight because a vocabulary has a quarter of a million."""
        unpack: Callable[..., tuple[int]] = struct.Struct("<Q").unpack_from
        data, position, size = self.file.view(0, self.file.size).data, self.position, self.file.size
        texts: list[str] = []
        try:
            for _ in range(count):
                (length,) = unpack(data, position)
                position += 8
                if length > size - position:
                    raise self.error(f"a string of `{key}`", f"at most {size - position} bytes", str(length))
                texts.append(str(data[position : position + length], "utf-8"))
                position += length
        except (struct.error, UnicodeDecodeError) as error:
            raise self.error(f"strings of `{key}`", "UTF-8 strings within the file", str(error)) from error
        self.position = position
        return texts

    def error(self, subject: str, expected: str, found: str, action: str = "") -> CheckpointError:
        return CheckpointError(
            f"GGUF {subject}",
            expected=expected,
            found=f"{found:.120}",
            where=f"{self.file.path}, byte {self.position}",
            action=action,
        )
