"""Lets a Triton stub that was built for NumPy 1 work with NumPy 2 (Python 3.13 has no NumPy 1).

The stub of nvidia-pytriton 0.7 (Triton 2.51) holds a pybind11 older than NumPy 2, which reads an item's size where
NumPy 1 kept it (``PyArray_Descr.elsize``, an int at offset 32); NumPy 2 has the low half of its flags there, 0 for
plain numbers. So inputs come with strides of 0 and outputs count 0 bytes. Both are mended from Python, inside the
stub's process alone: arrays are made contiguous whatever strides are asked for, and outputs carry a private dtype
whose field at that offset holds the item's size. The array lives until the stub has copied it; nothing computes with
it.
"""

import ctypes
import importlib
import struct
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

_NEW_FROM_DESCR = 94  # index in NumPy's C API table, the same in NumPy 1 and 2
_TABLE_LEN = 361
_OLD_SIZE_OFFSET = 32
_keep_alive: list[object] = []


def adapt_stub(pb_utils: Any) -> None:
    """Mend inputs and outputs of this process's stub. Call once, before the first request."""
    if np.lib.NumpyVersion(np.__version__) < "2.0.0":
        return
    _make_inputs_contiguous()
    tensor = pb_utils.Tensor
    pb_utils.Tensor = lambda name, array: tensor(name, _with_old_size(array))
    pb_utils.serialize_byte_tensor = _serialize


def _make_inputs_contiguous() -> None:
    """Give pybind11 a copy of NumPy's table whose ``PyArray_NewFromDescr`` ignores strides (they are C's or wrong)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        legacy: Any = importlib.import_module("numpy.core.multiarray")  # the name that the stub looks under
        capsule = legacy._ARRAY_API
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    table_type = ctypes.c_void_p * _TABLE_LEN
    table = table_type(*table_type.from_address(get(capsule, None)))
    pointer = ctypes.c_void_p
    signature = ctypes.PYFUNCTYPE(
        pointer, pointer, pointer, ctypes.c_int, pointer, pointer, pointer, ctypes.c_int, pointer
    )
    original = signature(table[_NEW_FROM_DESCR] or 0)

    def make_contiguous(kind: Any, descr: Any, ndim: int, dims: Any, _strides: Any, *rest: Any) -> Any:
        return original(kind, descr, ndim, dims, None, *rest)

    callback = signature(make_contiguous)
    table[_NEW_FROM_DESCR] = ctypes.cast(callback, pointer).value
    legacy._ARRAY_API = new(ctypes.addressof(table), None, None)
    _keep_alive.extend((table, callback, original, capsule))


def _with_old_size(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array's content under a dtype that shows its item size to NumPy 1's eyes; text is left to ``_serialize``."""
    if array.dtype.hasobject:
        return array
    dtype = np.dtype(array.dtype, metadata={"layout": "numpy1"})  # metadata: an instance of its own
    content = np.ascontiguousarray(array)
    return _mark(np.frombuffer(content.tobytes(), dtype).reshape(array.shape), dtype)


def _serialize(array: npt.NDArray[np.object_]) -> npt.NDArray[Any]:
    """Triton's wire form of text, as one item: of every text its length (4 bytes, little-endian) and its bytes."""
    items = [item if isinstance(item, bytes) else str(item).encode() for item in array.ravel().tolist()]
    content = b"".join(struct.pack("<I", len(item)) + item for item in items)
    dtype = np.dtype((np.void, len(content)))
    return _mark(np.frombuffer(content, dtype), dtype)


def _mark(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    ctypes.c_int32.from_address(id(array.dtype) + _OLD_SIZE_OFFSET).value = dtype.itemsize
    return array
