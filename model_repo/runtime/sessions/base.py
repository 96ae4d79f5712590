"""What the decode loop asks of an engine: one step over rows, named arrays in and out, and cache slots.

Dimensions: B rows, T tokens a row, N logits a row, V vocabulary, d hidden size.
"""

from collections.abc import Sequence
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
    (ancestors and itself; always u <= t). Logits are computed for tokens ``logits_index[b]`` alone. Tokens of a tree
    lie in the order of the block, whatever their positions are: ``keep_path`` puts those that stay in place.
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
    of one token costs as much as one of ``min_query_len``) are facts. ``exact_trees``: a token in a tree gets the bits
    that it would get in a chain; where False, chains alone are drafted.
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
    @property
    def exact_trees(self) -> bool: ...

    def step(self, inputs: StepInputs) -> StepOutputs:
        """Run one step; the new tokens' keys and values are in the cache afterwards at past_lengths[b] + t."""

    def keep_path(self, slot: int, start: int, sources: Sequence[int]) -> None:
        """Move the tokens cached at columns ``sources`` (ascending, >= ``start``) to ``start``, ``start`` + 1, ..."""

    def copy_slot(self, source: int, destination: int, num_tokens: int) -> None:
        """Copy the first ``num_tokens`` of a slot's cache (the loop keeps busy slots dense, since a step over
        consecutive slots is one run)."""

    def close(self) -> None:
        """Free everything; the session cannot be used afterwards."""


Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftInputs:
    """One step of a draft model over B rows; the first fields as in ``StepInputs``.

    ``tree_mask`` [B, T, U], U >= T, governs the columns from ``past_lengths`` - (U - T) on: tokens of earlier levels,
    then the block. One of ``features`` [B, T, F] (the target's, fused by the draft) and ``hidden`` [B, T, d] (what a
    step before gave) where the draft reads them, else both None. Per row of candidates: ``noise_keys``
    (``noise.position_key`` of the position that is guessed, as int64; 0: no noise) and ``inverse_temperature``.
    """

    slots: Int32Array  # [B], distinct
    token_ids: Int32Array  # [B, T]
    positions: Int32Array  # [B, T]
    past_lengths: Int32Array  # [B]
    query_lengths: Int32Array  # [B]
    tree_mask: BoolArray  # [B, T, U]
    logits_index: Int32Array  # [B, N]
    features: FloatArray | None
    hidden: FloatArray | None
    noise_keys: Int64Array  # [B, N]
    inverse_temperature: FloatArray  # [B, N]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftOutputs:
    """The c best candidates of each row, best first, and what is fed back. Valid until the next step of the session.

    ``token_ids``: target ids, -1 where there are fewer. ``logits``: at temperature 1. ``log_sum_exp``: of
    ``inverse_temperature`` * logit over all candidates considered. Best: largest ``inverse_temperature`` * logit +
    noise.
    """

    token_ids: Int32Array  # [B, N, c]
    logits: FloatArray  # [B, N, c]
    log_sum_exp: FloatArray  # [B, N]
    hidden: FloatArray | None  # [B, N, d]


class DraftSession(Protocol):
    """A loaded draft engine with its cache. Not thread-safe. ``feature_size`` and ``hidden_size`` are 0 where it reads
    none; ``window``: keys at distance < window, 0 for all; ``num_outputs``: c."""

    @property
    def num_slots(self) -> int: ...
    @property
    def max_query_len(self) -> int: ...
    @property
    def feature_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def window(self) -> int: ...
    @property
    def num_outputs(self) -> int: ...

    def step(self, inputs: DraftInputs) -> DraftOutputs:
        """Run one step; the tokens' keys and values are in the cache afterwards."""

    def copy_slot(self, source: int, destination: int, num_tokens: int) -> None:
        """Copy the first ``num_tokens`` of a slot's cache."""

    def close(self) -> None:
        """Free everything."""
