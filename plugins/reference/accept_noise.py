"""The random numbers of ``LossyAccept``: those of ``model_repo/runtime/noise.py``, keyed by (seed, position, token)."""

from typing import Any

import numpy as np
import numpy.typing as npt

_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = 2**64 - 1
_U64 = np.uint64

COIN, RESIDUAL = 1, 2
"""Streams of a position's uniform numbers: whether to accept, and what to emit instead."""


def position_key(seed: int, position: int) -> int:
    """The 64-bit key of an absolute token index; of a negative ``seed``, its 64 bits count."""
    return _mix((_mix(seed & _MASK) + position * _GOLDEN) & _MASK)


def position_uniform(key: int, stream: int) -> float:
    """A uniform number in (0, 1)."""
    return ((_mix(key ^ _mix(stream)) >> 32) + 0.5) * 2.0**-32


def gumbel_noise(key: int, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float64]:
    """Standard Gumbel noise of tokens, float64 [n]."""
    word = ids.astype(_U64) * _U64(_GOLDEN) + _U64((key + 2 * _GOLDEN) & _MASK)
    word = (word ^ (word >> _U64(30))) * _U64(_FIRST)
    word = (word ^ (word >> _U64(27))) * _U64(_SECOND)
    word = (word ^ (word >> _U64(31))) >> _U64(32)
    return np.asarray(-np.log(-np.log1p(-((word + 0.5) * 2.0**-32))))


def _mix(word: int) -> int:
    word = (word + _GOLDEN) & _MASK
    word = ((word ^ (word >> 30)) * _FIRST) & _MASK
    word = ((word ^ (word >> 27)) * _SECOND) & _MASK
    return word ^ (word >> 31)
