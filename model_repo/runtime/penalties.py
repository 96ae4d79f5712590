"""What changes a row's scores because of the tokens before it: penalties, bad words, suppressed end tokens.

Holds the history that they need; tokens are appended one by one as they are emitted, so nothing is ever rolled back.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from draftsmith.model_repo.contract.params import SamplingParams

from .sessions.base import FloatArray, Int32Array

IdArray = npt.NDArray[np.int64]


class TokenCounts:
    """Distinct tokens and how often each came, as arrays that grow."""

    def __init__(self) -> None:
        self._index: dict[int, int] = {}
        self._ids = np.zeros(64, np.int64)
        self._counts = np.zeros(64, np.float32)

    def add(self, token: int) -> None:
        """Count one more of ``token``."""
        at = self._index.get(token)
        if at is None:
            at = self._index[token] = len(self._index)
            if at == len(self._ids):
                self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._ids[at] = token
        self._counts[at] += 1

    @property
    def ids(self) -> IdArray:
        """Distinct tokens, int64 [n]."""
        return self._ids[: len(self._index)]

    @property
    def counts(self) -> FloatArray:
        """Occurrences of each, float32 [n]."""
        return self._counts[: len(self._index)]


class Penalties:
    """The history of one request and what it does to scores.

    Arguments:
        prompt_ids: int32 [n]; the repetition penalty counts them, bad words may begin in them.
        end_ids: suppressed until ``params.min_tokens`` tokens are out.
        bad_sequences: token sequences that must never be completed.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_ids: Int32Array,
        end_ids: Sequence[int],
        bad_sequences: Sequence[tuple[int, ...]],
    ) -> None:
        self._params = params
        self._num_output = 0
        self._end_ids = np.array(sorted(end_ids), np.int64)
        self._banned = np.array(sorted({s[0] for s in bad_sequences if len(s) == 1}), np.int64)
        self._bad_long = [s for s in bad_sequences if len(s) > 1]
        longest = max(map(len, self._bad_long), default=1)
        self._tail: list[int] = prompt_ids[len(prompt_ids) - min(len(prompt_ids), longest - 1) :].tolist()
        self._tail_len = longest - 1
        self._output = TokenCounts()
        self._seen = TokenCounts()
        self._repeats = params.repetition_penalty != 1.0
        self._counts = params.presence_penalty != 0.0 or params.frequency_penalty != 0.0
        if self._repeats:
            for token in np.unique(prompt_ids).tolist():
                self._seen.add(token)

    @property
    def is_neutral(self) -> bool:
        """True where scores would stay as they are, now and for the rest of the request."""
        waits = self._num_output < self._params.min_tokens and len(self._end_ids) > 0
        return not (waits or self._repeats or self._counts or len(self._banned) or self._bad_long)

    def apply(self, scores: FloatArray) -> None:
        """Change scores [V] in place: repetition, frequency and presence penalties, then bans (minus infinity)."""
        params = self._params
        if self._repeats:
            ids = self._seen.ids
            old = scores[ids]
            scores[ids] = np.where(old > 0, old / params.repetition_penalty, old * params.repetition_penalty)
        if self._counts:
            scores[self._output.ids] -= params.presence_penalty + params.frequency_penalty * self._output.counts
        if self._num_output < params.min_tokens:
            scores[self._end_ids] = -np.inf
        scores[self._banned] = -np.inf
        for bad in self._bad_long:
            if tuple(self._tail[len(self._tail) - len(bad) + 1 :]) == bad[:-1]:
                scores[bad[-1]] = -np.inf

    def append(self, token: int) -> None:
        """One more token is emitted."""
        self._num_output += 1
        if self._repeats:
            self._seen.add(token)
        if self._counts:
            self._output.add(token)
        if self._tail_len:
            self._tail.append(token)
            del self._tail[: -self._tail_len]
