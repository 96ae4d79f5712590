"""Acceptance rules as pure functions of distributions and uniform numbers.

p is the target's distribution at a position (what plain decoding would sample from), q the one that the drafted token
was really drawn from, both float64 [V] and normalised. With shared noise (the default) there is nothing to do here:
the target's own draw is compared with the draft, which is exact for any draft that was not drawn with other noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainResult:
    """``num_accepted`` drafted tokens are kept, then ``next_token`` follows (the residual's, or the bonus token)."""

    num_accepted: int
    next_token: int


def accepts(p: Float64Array, q: Float64Array, token: int, uniform: float) -> bool:
    """Accept a drawn token with probability min(1, p/q) (Leviathan et al. 2023; Chen et al. 2023)."""
    return uniform * float(q[token]) < float(p[token])


def find_residual(p: Float64Array, q: Float64Array) -> Float64Array:
    """What to sample from after a rejection: (p - q)+ normalised; p itself where p = q (then nothing is rejected)."""
    rest = np.maximum(p - q, 0.0)
    total = rest.sum()
    return rest / total if total > 0 else p


def draw_index(p: Float64Array, uniform: float) -> int:
    """The index at which the cumulative sum of p passes ``uniform`` in (0, 1); never one of probability 0."""
    mass = np.cumsum(p)
    index = int(np.searchsorted(mass, uniform * mass[-1], side="right"))
    return min(index, int(np.flatnonzero(p)[-1]))


def accept_sampled_chain(
    target: Sequence[Float64Array], draft: Sequence[Float64Array], tokens: Sequence[int], uniforms: Sequence[float]
) -> ChainResult:
    """Walk a chain whose tokens were drawn from ``draft``: keep them while they pass, then one token more.

    Arguments:
        target: k + 1 distributions, the target's at each position.
        draft: k distributions, the draft's. ``tokens``: the k tokens drawn from them.
        uniforms: k + 1 independent numbers in (0, 1): a coin a token, and one for the token that ends the chain.
    """
    for index, token in enumerate(tokens):
        if not accepts(target[index], draft[index], token, uniforms[index]):
            rest = find_residual(target[index], draft[index])
            return ChainResult(num_accepted=index, next_token=draw_index(rest, uniforms[-1]))
    return ChainResult(num_accepted=len(tokens), next_token=draw_index(target[len(tokens)], uniforms[-1]))
