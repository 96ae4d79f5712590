"""Triton tensors as bytes: values of a contract field <-> datatype, shape and raw content. Pure; both directions.

Little-endian, row-major; BYTES elements carry a 4-byte length each (KServe v2, binary tensor data).
"""

import math
import struct
from collections.abc import Sequence

import numpy as np
from draftsmith.model_repo.contract.tensors import TensorType

Value = str | bytes | int | float | bool

_NUMPY: dict[TensorType, str] = {"INT32": "<i4", "UINT64": "<u8", "FP32": "<f4", "BOOL": "|b1"}
_LENGTH = struct.Struct("<I")


def pack(datatype: TensorType, values: Sequence[Value]) -> bytes:
    """Raw content of a tensor; text is sent as UTF-8.

    Raises ``UnicodeEncodeError`` for text with lone surrogates and ``OverflowError`` for integers out of range.
    """
    if datatype == "BYTES":
        parts = []
        for value in values:
            data = str(value).encode() if not isinstance(value, bytes) else value
            parts += [_LENGTH.pack(len(data)), data]
        return b"".join(parts)
    return np.array(values, dtype=_NUMPY[datatype]).tobytes()


def unpack(datatype: str, shape: Sequence[int], content: bytes) -> list[Value]:
    """The values of a tensor as a flat list (BYTES elements as bytes). ``ValueError`` where content does not fit."""
    count = math.prod(shape)
    if datatype == "BYTES":
        values: list[Value] = list(_elements(content))
    elif datatype in _NUMPY:
        array = np.frombuffer(content, dtype=_NUMPY[datatype])
        values = array.tolist()
    else:
        raise ValueError(f"type {datatype} is not one of the contract's")
    if len(values) != count:
        raise ValueError(f"{len(values)} elements do not fill the shape {list(shape)}")
    return values


def _elements(content: bytes) -> Sequence[bytes]:
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
