"""One request's way from a row of logits to a token: check, penalties, greedy or drawn, log-probabilities."""

import math

import numpy as np
from draftsmith.model_repo.contract.errors import ErrorCode, RequestError
from draftsmith.model_repo.contract.params import SamplingParams

from .acceptance import accepts, draw_index, find_residual
from .logprobs import LogprobEntry, measure_logprobs
from .noise import position_key, position_uniform
from .penalties import Penalties
from .sampling import Float64Array, choose_top, draw, find_probabilities
from .sessions.base import FloatArray

_COIN, _RESIDUAL = 1, 2


class TokenChooser:
    """Chooses the tokens of one request, one position after the other; ``append`` tells it what was emitted."""

    def __init__(self, params: SamplingParams, penalties: Penalties, seed: int) -> None:
        self._params = params
        self._penalties = penalties
        self.seed = seed
        self._greedy = params.is_greedy
        self._wants_logprobs = params.return_log_probs or params.num_top_log_probs > 0
        self._plain = penalties.is_neutral

    def choose(self, logits: FloatArray, position: int) -> int:
        """The token at absolute index ``position`` for raw logits [V].

        Raises:
            RequestError: the row holds NaN or infinity, or the bans leave no token.
        """
        top = choose_top(logits)
        _check_finite(logits, top, position)
        if self._plain:
            return top if self._greedy else draw(logits, self._params, position_key(self.seed, position))
        scores = self._penalise(logits)
        return choose_top(scores) if self._greedy else draw(scores, self._params, position_key(self.seed, position))

    def choose_sampled(self, logits: FloatArray, position: int, drafted: int, q: Float64Array) -> int:
        """The token for a draft that was really drawn from ``q`` [V]: ``drafted`` with min(1, p/q), else the residual.

        Raises:
            RequestError: as ``choose``.
        """
        if self._greedy:
            return self.choose(logits, position)
        _check_finite(logits, choose_top(logits), position)
        p = find_probabilities(logits if self._plain else self._penalise(logits), self._params)
        key = position_key(self.seed, position)
        if accepts(p, q, drafted, position_uniform(key, _COIN)):
            return drafted
        return draw_index(find_residual(p, q), position_uniform(key, _RESIDUAL))

    def measure(self, logits: FloatArray, token: int) -> LogprobEntry | None:
        """The log-probabilities that the request asked for, of the raw logits [V]; None where it did not."""
        if not self._wants_logprobs:
            return None
        return measure_logprobs(logits, token, self._params.num_top_log_probs)

    def append(self, token: int) -> None:
        """One more token is emitted."""
        if not self._plain:
            self._penalties.append(token)
            self._plain = self._penalties.is_neutral

    def _penalise(self, logits: FloatArray) -> FloatArray:
        scores = logits.copy()
        self._penalties.apply(scores)
        if scores.max() == -np.inf:
            raise RequestError("bad_words", expected="at least one token that is allowed", found="every token banned")
        return scores


def _check_finite(logits: FloatArray, top: int, position: int) -> None:
    """NaN counts as the largest for ``argmax`` and as the smallest for ``min``, so two numbers tell."""
    if math.isfinite(logits[top]) and math.isfinite(logits.min()):
        return
    raise RequestError(
        "logits",
        code=ErrorCode.INTERNAL,
        expected="finite numbers",
        found="NaN or infinity",
        where=f"position {position}",
        action="The engine overflows on this input; rebuild it with a wider precision",
    )
