"""Which target token each row of a subset head stands for: offsets, direct ids or a mask, checked against one another.

Sources: EAGLE's and vLLM's loaders (``target = i + d2t[i]``, ``t2d`` a mask over the target's vocabulary), TensorRT
Edge-LLM's ``vocab_map`` (direct ids).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import CheckpointError
from .tensor_names import DIRECT_IDS, MASK, OFFSETS
from .token_ids import find_id_fault

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMaps:
    """What a file holds: ``offsets`` [N], ``mask`` [V] of 0 and 1, ``direct_ids`` [N]; None where absent."""

    offsets: Index | None = None
    mask: Index | None = None
    direct_ids: Index | None = None


def resolve_target_ids(
    maps: StoredMaps, *, head_vocab_size: int, vocab_size: int, where: str, choices: list[str]
) -> npt.NDArray[np.int32] | None:
    """int32 [head_vocab_size], or None where row i is token i for the whole vocabulary.

    Raises ``CheckpointError`` where a smaller head has no map, an id is out of range or double, or the parts disagree.
    """
    masked = None if maps.mask is None else _read_mask(maps.mask, head_vocab_size, vocab_size, where, choices)
    target = _Target(vocab_size, masked, where)
    stored = ((DIRECT_IDS, maps.direct_ids), (OFFSETS, maps.offsets))
    found = [(name, values) for name, values in stored if values is not None]
    for name, values in found:
        if values.shape != (head_vocab_size,):
            raise _error(name, f"shape [{head_vocab_size}]", str(list(values.shape)), where)
    candidates = [_resolve(name, values, target, choices) for name, values in found]
    if len(candidates) == 2 and not np.array_equal(candidates[0], candidates[1]):
        raise _error(DIRECT_IDS, f"the same tokens as {OFFSETS}", "others", where)
    ids = candidates[0] if candidates else masked
    if ids is None:
        if head_vocab_size == vocab_size:
            return None
        raise CheckpointError(
            f"tensor `{OFFSETS}`",
            expected=f"a map from the head's {head_vocab_size} rows to the target's {vocab_size} tokens",
            found=f"neither {OFFSETS} nor {MASK} nor {DIRECT_IDS}",
            where=where,
            action="Without it no row's token is known: get the complete draft.",
        )
    if not candidates:
        choices.append(f"{MASK} alone maps the head's rows: row i is the i-th token of the mask.")
    if np.array_equal(ids, np.arange(head_vocab_size)):
        if head_vocab_size == vocab_size:
            return None
        choices.append(
            f"the head's rows are the first {head_vocab_size} tokens of {vocab_size}: what a map that was never filled "
            "looks like. No other token can be drafted."
        )
    return ids.astype(np.int32)


@dataclass(frozen=True, slots=True)
class _Target:
    """What ids are checked against: the vocabulary's size, and the sorted ids of the mask where there is one."""

    vocab_size: int
    masked: Index | None
    where: str


def _resolve(name: str, values: Index, target: _Target, choices: list[str]) -> Index:
    """Target ids of one map, as its name says; ``d2t`` with direct ids only where the mask agrees with them alone."""
    rows = np.arange(len(values))
    ids = values + rows if name == OFFSETS else values
    fault = _find_fault(ids, target)
    if fault is None:
        if name == OFFSETS and target.masked is None and _may_be_ids(values, target):
            choices.append(
                f"{OFFSETS} was taken as offsets, but all its values differ, as those of direct target ids do, and no "
                f"{MASK} tells: where hardly a guess is accepted, rename the tensor to {DIRECT_IDS}."
            )
        return ids
    if name == OFFSETS and target.masked is not None and _find_fault(values, target) is None:
        choices.append(f"{OFFSETS} was taken as direct target ids, not as offsets ({MASK} agrees with them alone).")
        return values
    raise _error(name, *fault, target.where)


MIN_TELLING_ROWS = 64
"""Offsets of that many rows that all differ would be a vocabulary without two neighbouring tokens."""


def _may_be_ids(values: Index, target: _Target) -> bool:
    return len(values) >= MIN_TELLING_ROWS and _find_fault(values, target) is None


def _find_fault(ids: Index, target: _Target) -> tuple[str, str] | None:
    """What was expected and found of the first wrong id, None where all are right."""
    fault, masked = find_id_fault(ids, target.vocab_size), target.masked
    if fault is not None:
        return fault
    if masked is not None and not np.array_equal(np.sort(ids), masked):
        token = int(np.setxor1d(ids, masked)[0])
        return f"the tokens of {MASK}", f"{token} in one of them alone"
    return None


def _read_mask(mask: Index, head_vocab_size: int, vocab_size: int, where: str, choices: list[str]) -> Index | None:
    """Sorted target ids that the mask has; None where it says nothing: empty, beside a head of all rows."""
    if mask.shape != (vocab_size,):
        raise _error(MASK, f"shape [{vocab_size}]", str(list(mask.shape)), where)
    if ((mask != 0) & (mask != 1)).any():
        raise _error(MASK, "true or false", str(int(mask[(mask != 0) & (mask != 1)][0])), where)
    ids = np.flatnonzero(mask)
    if len(ids) == 0 and head_vocab_size == vocab_size:
        choices.append(f"{MASK} is empty, as where it was never filled; the head has the whole vocabulary.")
        return None
    if len(ids) != head_vocab_size:
        raise _error(MASK, f"{head_vocab_size} tokens, the head's rows", str(len(ids)), where)
    return ids


def _error(name: str, expected: str, found: str, where: str) -> CheckpointError:
    action = "The map is corrupt or belongs to another draft."
    return CheckpointError(f"tensor `{name}`", expected=expected, found=found, where=where, action=action)
