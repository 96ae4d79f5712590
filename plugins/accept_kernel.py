"""LossyAccept's kernel from Python: device pointers as integers, beside ``kernel_library``'s SpecVocabHead."""

import ctypes
from dataclasses import dataclass

from .kernel_library import ElementType, KernelLibrary, pack_addresses, pack_sizes

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


class AcceptKernel:
    """LossyAccept of a loaded library. Calls act on the calling thread's current device."""

    def __init__(self, library: KernelLibrary) -> None:
        self._library = library

    def workspace_bytes(self, shape: AcceptShape) -> tuple[int, int]:
        """Bytes of workspace that a launch of this shape needs, and how many of the first are its counters."""
        size, counters = ctypes.c_size_t(), ctypes.c_size_t()
        self._library.call(
            "draftsmith_accept_workspace_bytes", pack_sizes(shape), ctypes.byref(size), ctypes.byref(counters)
        )
        return size.value, counters.value

    def launch(self, shape: AcceptShape, arguments: AcceptArguments, stream: int) -> None:
        """Enqueue on ``stream``, a ``cudaStream_t`` as a number."""
        sizes, addresses = pack_sizes(shape), pack_addresses(arguments)
        self._library.call("draftsmith_accept_launch", sizes, addresses, ctypes.c_void_p(stream))
