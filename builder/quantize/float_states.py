"""What the float model's head reads on texts, kept so that one run of a target serves several measurements."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .decoder import FloatArray, ReadTensor, TokenIds

_ROWS = 4096
LARGEST_FP16 = 65504.0


@dataclass(frozen=True, slots=True)
class FloatStates:
    """Sequences that the target has run over with weights as FP16 holds them: ids [n] and hidden states [n, d]."""

    known: tuple[tuple[TokenIds, FloatArray], ...]

    def find(self, sequences: Iterable[TokenIds]) -> list[FloatArray] | None:
        """The states of each sequence, which may be the beginning of a known one; None where one is not known."""
        found = [self._find_one(sequence) for sequence in sequences]
        states = [one for one in found if one is not None]
        return states if len(states) == len(found) else None

    def _find_one(self, sequence: TokenIds) -> FloatArray | None:
        size = len(sequence)
        return next((h[:size] for ids, h in self.known if np.array_equal(ids[:size], sequence)), None)


def make_float_states(sequences: Sequence[TokenIds], hidden: Sequence[FloatArray]) -> FloatStates:
    """``hidden``: of each sequence."""
    return FloatStates(tuple(zip(sequences, hidden, strict=True)))


def read_half(read: ReadTensor) -> ReadTensor:
    """Tensors as FP16 holds them; those that FP16 cannot hold as they are. Rounds in place, some rows at a time."""

    def read_rounded(name: str) -> FloatArray:
        tensor = read(name)
        if max(float(tensor.max(initial=0.0)), -float(tensor.min(initial=0.0))) <= LARGEST_FP16:
            for start in range(0, len(tensor), _ROWS):
                rows = slice(start, start + _ROWS)
                tensor[rows] = tensor[rows].astype(np.float16)
        return tensor

    return read_rounded
