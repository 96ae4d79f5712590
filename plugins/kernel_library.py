"""The CUDA kernels (``csrc/kernels``) from Python: device pointers as integers, a typed error for every refusal.

The library is loaded with ctypes and knows no framework: whoever calls owns the memory, the stream and the device.
"""

import ctypes
from dataclasses import dataclass, fields
from enum import IntEnum
from pathlib import Path
from typing import Any

KERNELS_VERSION = 1
LIBRARY_VARIABLE = "DRAFTSMITH_PLUGIN_KERNELS"


class ElementType(IntEnum):
    """``draftsmith_type`` of status.h."""

    FLOAT16 = 0
    BFLOAT16 = 1
    INT8 = 2
    FLOAT8_E4M3 = 3
    FLOAT32 = 4


class HeadPath(IntEnum):
    """``draftsmith_head_path`` of spec_vocab_head.h."""

    AUTO = 0
    GENERAL = 1
    FUSED = 2


class KernelLibraryError(Exception):
    """The library cannot be loaded, or is of another version; ``path`` says which."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class KernelError(Exception):
    """A kernel refused its arguments: the status' number and name, and what was found."""

    def __init__(self, function: str, status: int, name: str, detail: str) -> None:
        super().__init__(f"{function}: {name}: {detail}")
        self.function, self.status, self.name, self.detail = function, status, name, detail


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShape:
    """Sizes and types of one launch; ranges and meaning as in spec_vocab_head.h."""

    num_rows: int
    hidden_size: int
    rank: int
    num_vocab: int
    num_candidates: int
    num_outputs: int
    group_size: int
    hidden_type: ElementType
    ranking_type: ElementType
    path: HeadPath


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadArguments:
    """Device addresses; 0 is null. Shapes and types as in spec_vocab_head.h."""

    hidden: int
    w_down: int
    w_vocab: int
    w_vocab_scales: int
    w_head: int
    request_of_row: int
    candidate_ids: int
    candidate_logits: int
    log_sum_exp: int
    chosen_ids: int
    workspace: int
    workspace_bytes: int


def pack_sizes(shape: Any) -> ctypes.Array[ctypes.c_int32]:
    """A dataclass of whole numbers as the structure of int32 that the C interface has for it."""
    values = [int(getattr(shape, field.name)) for field in fields(shape)]
    return (ctypes.c_int32 * len(values))(*values)


def pack_addresses(arguments: Any) -> ctypes.Array[ctypes.c_size_t]:
    """A dataclass of device addresses and sizes as the structure of pointers and size_t that the C interface has."""
    values = [getattr(arguments, field.name) for field in fields(arguments)]
    return (ctypes.c_size_t * len(values))(*values)


class KernelLibrary:
    """A loaded library. Calls act on the calling thread's current device and enqueue on the stream they are given."""

    def __init__(self, path: Path) -> None:
        """Raises ``KernelLibraryError`` where ``path`` cannot be loaded or has another version than this module."""
        try:
            self._library = ctypes.CDLL(str(path))
            version = int(self._library.draftsmith_kernels_version())
        except (OSError, AttributeError) as error:
            raise KernelLibraryError(path, f"cannot be loaded as draftsmith's kernels: {error}") from error
        if version != KERNELS_VERSION:
            raise KernelLibraryError(
                path, f"expected kernels of version {KERNELS_VERSION}, found {version}. Build the library again."
            )
        self.path = path
        for function in (self._library.draftsmith_status_name, self._library.draftsmith_status_detail):
            function.restype = ctypes.c_char_p

    def head_workspace_bytes(self, shape: HeadShape) -> int:
        """Bytes of workspace that ``head_launch`` of this shape needs."""
        size = ctypes.c_size_t()
        self.call("draftsmith_head_workspace_bytes", pack_sizes(shape), ctypes.byref(size))
        return size.value

    def head_chosen_path(self, shape: HeadShape) -> HeadPath:
        """Which path a launch of this shape takes if its pointers are aligned to 16 bytes and no rows share."""
        path = ctypes.c_int32()
        self.call("draftsmith_head_chosen_path", pack_sizes(shape), ctypes.byref(path))
        return HeadPath(path.value)

    def head_launch(self, shape: HeadShape, arguments: HeadArguments, stream: int) -> None:
        """Enqueue SpecVocabHead on ``stream``, a ``cudaStream_t`` as a number."""
        sizes, addresses = pack_sizes(shape), pack_addresses(arguments)
        self.call("draftsmith_head_launch", sizes, addresses, ctypes.c_void_p(stream))

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of the C interface that returns a status; raises ``KernelError`` unless that is 0."""
        status = int(getattr(self._library, function)(*arguments))
        if status != 0:
            name: bytes = self._library.draftsmith_status_name(ctypes.c_int32(status))
            detail: bytes = self._library.draftsmith_status_detail()
            raise KernelError(function, status, name.decode(), detail.decode())
