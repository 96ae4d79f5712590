"""LossyAccept's kernel from Python: device pointers as integers, beside ``kernel_library``'s SpecVocabHead."""

import ctypes
from dataclasses import dataclass, fields

from .kernel_library import ElementType, KernelLibrary

NUM_FLOATS, NUM_INTS = 8, 4
SHARED_NOISE, SAMPLED = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptShape:
    """Sizes and type of one launch; ranges and meaning as in lossy_accept.h."""

    num_requests: int
    max_nodes: int
    num_vocab: int
    num_candidates: int
    logits_type: ElementType
    clean_counters: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptArguments:
    """Device addresses; 0 is null. Shapes and types as in lossy_accept.h."""

    logits: int
    parents: int
    token_ids: int
    num_nodes: int
    candidate_ids: int
    candidate_log_probs: int
    row_floats: int
    row_ints: int
    row_keys: int
    relaxation: int
    accepted_nodes: int
    accepted_length: int
    bonus_token: int
    divergence: int
    regret_nats: int
    flags: int
    recovery_state: int
    workspace: int
    workspace_bytes: int


class _AcceptShapeStruct(ctypes.Structure):
    _fields_ = [(field.name, ctypes.c_int32) for field in fields(AcceptShape)]


class _AcceptArgumentsStruct(ctypes.Structure):
    _fields_ = [
        (field.name, ctypes.c_size_t if field.name == "workspace_bytes" else ctypes.c_void_p)
        for field in fields(AcceptArguments)
    ]


class AcceptKernel:
    """LossyAccept of a loaded library. Calls act on the calling thread's current device."""

    def __init__(self, library: KernelLibrary) -> None:
        self._library = library

    def workspace_bytes(self, shape: AcceptShape) -> tuple[int, int]:
        """Bytes of workspace that a launch of this shape needs, and how many of the first are its counters."""
        size, counters = ctypes.c_size_t(), ctypes.c_size_t()
        struct = _shape_struct(shape)
        self._library.call(
            "draftsmith_accept_workspace_bytes", ctypes.byref(struct), ctypes.byref(size), ctypes.byref(counters)
        )
        return size.value, counters.value

    def launch(self, shape: AcceptShape, arguments: AcceptArguments, stream: int) -> None:
        """Enqueue on ``stream``, a ``cudaStream_t`` as a number."""
        values = {field.name: getattr(arguments, field.name) or None for field in fields(AcceptArguments)}
        values["workspace_bytes"] = arguments.workspace_bytes
        struct, sizes = _AcceptArgumentsStruct(**values), _shape_struct(shape)
        self._library.call(
            "draftsmith_accept_launch", ctypes.byref(sizes), ctypes.byref(struct), ctypes.c_void_p(stream)
        )


def _shape_struct(shape: AcceptShape) -> _AcceptShapeStruct:
    return _AcceptShapeStruct(**{field.name: int(getattr(shape, field.name)) for field in fields(AcceptShape)})
