"""One safetensors file: its header is checked against the file before anything in it is trusted, then memory-mapped.

Format: 8 bytes little-endian header length, a JSON object name -> {dtype, shape, data_offsets}, then the bytes of all
tensors without gap or overlap. Source: the format description of the safetensors project (limits included).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from draftsmith.builder.errors import CheckpointError

from .mapped_file import MappedFile
from .source import TensorFacts
from .values import ELEMENT_BYTES, Weights, check_finite, read_float32

MAX_HEADER_BYTES = 100_000_000
MAX_DIMENSIONS = 16
# Types that may lie in a file; only those of ``ELEMENT_BYTES`` can be read as weights.
STORED_BYTES = {
    **ELEMENT_BYTES,
    "I64": 8,
    "U64": 8,
    "I32": 4,
    "U32": 4,
    "I16": 2,
    "U16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "C64": 8,
}


# What ``read_integers`` reads: maps of ids, masks and codes.
INTEGER_TYPES = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "u1"}


@dataclass(frozen=True, slots=True)
class Entry:
    """Facts and place of one tensor; ``begin`` counts from the start of the file."""

    facts: TensorFacts
    begin: int


class SafetensorsFile:
    """A mapped file; ``entries`` is checked, ``read`` gives one tensor."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = _read_entries(path)
        self._file = MappedFile(path)

    def read(self, name: str) -> Weights:
        """One tensor as float32; ``CheckpointError`` for types that are no weights, NaN and infinity."""
        entry = self.entries[name]
        facts = entry.facts
        if facts.dtype not in ELEMENT_BYTES:
            raise self._error(f"tensor `{name}`", ", ".join(ELEMENT_BYTES), facts.dtype, "This type is not supported.")
        values = read_float32(self._file, entry.begin, facts.dtype, facts.shape)
        return check_finite(values, name, str(self.path))

    def read_integers(self, name: str) -> npt.NDArray[np.int64]:
        """One tensor of whole numbers (or of true and false, as 1 and 0); ``CheckpointError`` for other types."""
        entry = self.entries[name]
        facts = entry.facts
        if facts.dtype not in INTEGER_TYPES:
            raise self._error(f"tensor `{name}`", ", ".join(INTEGER_TYPES), facts.dtype)
        raw = self._file.view(entry.begin, facts.num_bytes).copy()
        return raw.view(INTEGER_TYPES[facts.dtype]).astype(np.int64).reshape(facts.shape)

    def close(self) -> None:
        """Unmap; arrays that were read stay valid, they are copies."""
        self._file.close()

    def _error(self, subject: str, expected: str, found: str, action: str = "") -> CheckpointError:
        return CheckpointError(subject, expected=expected, found=found, where=str(self.path), action=action)


def _read_entries(path: Path) -> dict[str, Entry]:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(8)
            length = int.from_bytes(prefix, "little") if len(prefix) == 8 else -1
            if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
                raise CheckpointError(
                    "safetensors header length",
                    expected=f"2 to {max(2, min(MAX_HEADER_BYTES, size - 8))} bytes",
                    found=f"{length}" if length >= 0 else f"a file of {size} bytes",
                    where=str(path),
                    action="The file is truncated or corrupt.",
                )
            header = file.read(length)
    except OSError as error:
        raise CheckpointError("safetensors file", found=str(error), where=str(path)) from error
    return _check_entries(_parse(header, path), data_begin=8 + length, size=size, path=path)


def _parse(header: bytes, path: Path) -> dict[str, Any]:
    try:
        values = json.loads(header.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            "safetensors header", expected="a JSON object", found=str(error)[:120], where=str(path)
        ) from error
    if not isinstance(values, dict):
        raise CheckpointError(
            "safetensors header", expected="a JSON object", found=type(values).__name__, where=str(path)
        )
    values.pop("__metadata__", None)
    return values


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name given twice")
    return values


def _check_entries(header: Mapping[str, Any], *, data_begin: int, size: int, path: Path) -> dict[str, Entry]:
    entries = {name: _check_entry(name, value, data_begin, size, path) for name, value in header.items()}
    end = data_begin
    for entry in sorted(entries.values(), key=lambda e: (e.begin, e.facts.num_bytes)):
        if entry.begin != end:
            kind = "overlaps the tensor before it" if entry.begin < end else "leaves a gap before it"
            raise CheckpointError(
                f"tensor `{entry.facts.name}`",
                expected=f"to begin at byte {end - data_begin}",
                found=f"{entry.begin - data_begin}, it {kind}",
                where=str(path),
            )
        end += entry.facts.num_bytes
    if end != size:
        raise CheckpointError(
            "safetensors file", expected=f"{end} bytes", found=f"{size}", where=str(path), action="Download it again."
        )
    return entries


def _check_entry(name: str, value: Any, data_begin: int, size: int, path: Path) -> Entry:
    def error(expected: str, found: object) -> CheckpointError:
        return CheckpointError(f"tensor `{name}`", expected=expected, found=f"{found!r:.100}", where=str(path))

    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise error("dtype, shape and data_offsets", value)
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in STORED_BYTES:
        raise error("a known dtype", dtype)
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not all(_is_size(n) for n in shape):
        raise error("a shape of whole numbers", shape)
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_size(n) for n in offsets):
        raise error("two data_offsets", offsets)
    begin, end = offsets
    num_bytes = math.prod(shape) * STORED_BYTES[dtype]
    if end - begin != num_bytes:
        raise error(f"{num_bytes} bytes for {dtype} {shape}", end - begin)
    if data_begin + end > size:
        raise CheckpointError(
            f"tensor `{name}`",
            expected=f"to end within the file's {size} bytes",
            found=f"byte {data_begin + end}",
            where=str(path),
            action="The file is truncated: download it again.",
        )
    return Entry(TensorFacts(name, tuple(shape), dtype, num_bytes), data_begin + begin)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
