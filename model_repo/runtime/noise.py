"""Counter-based noise: a number for (seed, position, token) that depends on nothing else.

So a sampled text does not depend on the draft, the block borders or the batch (design 6, shared noise). The mixer is
SplitMix64's (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014), on 64-bit words:
key = mix(mix(seed) + position * GOLDEN), bits(token) = the upper half of mix(key + (token + 1) * GOLDEN).
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_MASK = 2**64 - 1
_U64 = np.uint64

# The 32 bits b stand for w = (b + 0.5) / 2^32, E = -log(1 - w) and G = -log(E): neither is ever infinite.
GUMBEL_MAX = -math.log(-math.log1p(-(0.5 * 2.0**-32)))
GUMBEL_MIN = -math.log(-math.log1p(-(1.0 - 0.5 * 2.0**-32)))


def mix(word: int) -> int:
    """SplitMix64's output function of a 64-bit word."""
    word = (word + GOLDEN) & _MASK
    word = ((word ^ (word >> 30)) * _FIRST) & _MASK
    word = ((word ^ (word >> 27)) * _SECOND) & _MASK
    return word ^ (word >> 31)


def position_key(seed: int, position: int) -> int:
    """The 64-bit key of all noise at an absolute token index; ``seed`` is 64 bits."""
    return mix((mix(seed) + position * GOLDEN) & _MASK)


def token_bits(key: int, token_ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.uint64]:
    """32 uniform bits a token, as uint64 [n]."""
    word: npt.NDArray[np.uint64] = token_ids.astype(_U64)
    word *= _U64(GOLDEN)
    word += _U64((key + 2 * GOLDEN) & _MASK)  # (token + 1) * GOLDEN, and the GOLDEN that mix() adds
    word ^= word >> _U64(30)
    word *= _U64(_FIRST)
    word ^= word >> _U64(27)
    word *= _U64(_SECOND)
    word ^= word >> _U64(31)
    word >>= _U64(32)
    return word


def gumbel(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Standard Gumbel noise of 32 uniform bits, float64 [n]."""
    uniform = (bits + 0.5) * 2.0**-32
    noise: npt.NDArray[np.float64] = -np.log(-np.log1p(-uniform))
    return noise


def position_uniform(key: int, stream: int) -> float:
    """A uniform number in (0, 1) of a position, independent of its tokens' noise; ``stream`` tells several apart."""
    return ((mix(key ^ mix(stream)) >> 32) + 0.5) * 2.0**-32
