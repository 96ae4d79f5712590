"""Triton tensors as bytes: values of a contract field <-> datatype, shape and raw content. Pure; both directions.

Little-endian, row-major; BYTES elements carry a 4-byte length each (KServe v2, binary tensor data).
"""

import math
import struct
from collections.abc import Sequence

from draftsmith.model_repo.contract.tensors import TensorType

Value = str | bytes | int | float | bool

_FORMATS: dict[str, str] = {"INT32": "i", "UINT64": "Q", "FP32": "f", "BOOL": "?"}  # of struct
_LENGTH = struct.Struct("<I")


def pack(datatype: TensorType, values: Sequence[Value]) -> bytes:
    """Raw content of a tensor; text is sent as UTF-8.

    Raises ``UnicodeEncodeError`` for text with lone surrogates and ``struct.error`` for numbers out of range.
    """
    if datatype == "BYTES":
        parts = []
        for value in values:
            data = value if isinstance(value, bytes) else str(value).encode()
            parts += [_LENGTH.pack(len(data)), data]
        return b"".join(parts)
    return struct.pack(f"<{len(values)}{_FORMATS[datatype]}", *values)


def unpack(datatype: str, shape: Sequence[int], content: bytes) -> Sequence[Value]:
    """The values of a tensor, flat (BYTES elements as bytes). ``ValueError`` where content does not fit the shape."""
    count = math.prod(shape)
    if datatype == "BYTES":
        elements = _elements(content)
        if len(elements) != count:
            raise ValueError(f"{len(elements)} elements do not fill the shape {list(shape)}")
        return elements
    if datatype not in _FORMATS:
        raise ValueError(f"type {datatype} is not one of the contract's")
    layout = _FORMATS[datatype]
    if count < 0 or count * struct.calcsize(f"<{layout}") != len(content):
        raise ValueError(f"{len(content)} bytes do not fill the shape {list(shape)} of {datatype}")
    return struct.unpack(f"<{count}{layout}", content)


def _elements(content: bytes) -> list[bytes]:
    elements, at = [], 0
    while at < len(content):
        if at + 4 > len(content):
            raise ValueError("a BYTES element has no length")
        (size,) = _LENGTH.unpack_from(content, at)
        at += 4
        if at + size > len(content):
            raise ValueError("a BYTES element is cut short")
        elements.append(content[at : at + size])
        at += size
    return elements
