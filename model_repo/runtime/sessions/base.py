"""What the decode loop asks of an engine: one step over rows, named arrays in and out, and cache slots.

Dimensions: B rows, T tokens a row, N logits a row, V vocabulary, d hidden size.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """One target step over B rows.

    Row b is cache slot ``slots[b]``: it holds ``past_lengths[b]`` tokens and gets ``query_lengths[b]`` (1 to T) more;
    the rest of its T tokens is padding and leaves no trace. ``tree_mask[b, t, u]``: token t sees token u of the block
    (ancestors and itself; always u <= t). Logits are computed for tokens ``logits_index[b]`` alone.
    """

    slots: Int32Array  # [B], distinct
    token_ids: Int32Array  # [B, T]
    positions: Int32Array  # [B, T]
    past_lengths: Int32Array  # [B]
    query_lengths: Int32Array  # [B]
    tree_mask: BoolArray  # [B, T, T]
    logits_index: Int32Array  # [B, N]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutputs:
    """Valid until the next step of the same session (the arrays are reused buffers)."""

    logits: FloatArray  # [B, N, V]
    features: FloatArray | None  # [B, T, 3d], None where the engine has no feature layers


class TargetSession(Protocol):
    """A loaded target engine with its cache. Not thread-safe: one thread steps it.

    A row's result depends on its own tokens alone, bit for bit, whatever B, T and its batch mates are. ``num_slots``,
    ``capacity`` (tokens a slot can hold), ``vocab_size``, ``max_query_len`` and ``min_query_len`` (free tokens: a step
    of one token costs as much as one of ``min_query_len``) are facts.
    """

    @property
    def num_slots(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def max_query_len(self) -> int: ...
    @property
    def min_query_len(self) -> int: ...

    def step(self, inputs: StepInputs) -> StepOutputs:
        """Run one step; the new tokens' keys and values are in the cache afterwards at past_lengths[b] + t."""

    def copy_slot(self, source: int, destination: int, num_tokens: int) -> None:
        """Copy the first ``num_tokens`` of a slot's cache (the loop keeps busy slots dense, since a step over
        consecutive slots is one run)."""

    def close(self) -> None:
        """Free everything; the session cannot be used afterwards."""
