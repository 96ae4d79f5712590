"""LossyAccept's random numbers, p of a row and draws from it, as ``plugins/reference/accept_{noise,target}.py`` say.

V tokens. All numbers are float64, all counts and words int64.
"""

import math
from dataclasses import dataclass

from draftsmith.plugins.reference.accept_step import Rule

from .function_values import Value, apply, constant, greatest, to_signed, where

_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
COIN, RESIDUAL = 1, 2
_GREEDY = 1e-4


def position_key(seed: Value, position: Value) -> Value:
    """The key of an absolute token index."""
    return _mix(_mix(seed) + position * to_signed(_GOLDEN))


def position_uniform(key: Value, stream: int) -> Value:
    """A uniform number in (0, 1)."""
    return _uniform(_mix(key ^ _mix(constant(key, stream, "int64"))))


def gumbel_noise(key: Value, ids: Value) -> Value:
    """Standard Gumbel noise of tokens [n]."""
    words = ids * to_signed(_GOLDEN) + (key + to_signed(2 * _GOLDEN & (2**64 - 1)))
    return -(-(1.0 - _uniform(_finish(words))).log()).log()


def _mix(word: Value) -> Value:
    return _finish(word + to_signed(_GOLDEN))


def _finish(word: Value) -> Value:
    word = (word ^ word.shift_right(30)) * to_signed(_FIRST)
    word = (word ^ word.shift_right(27)) * to_signed(_SECOND)
    return word ^ word.shift_right(31)


def _uniform(word: Value) -> Value:
    return (word.shift_right(32).cast("float64") + 0.5) * 2.0**-32


@dataclass(frozen=True, slots=True, kw_only=True)
class RowParams:
    """A request's parameters: float64 and int64 scalars, and what follows from them, bool."""

    temperature: Value
    top_p: Value
    min_p: Value
    first: Value
    second: Value
    left: Value
    recovery_limit: Value
    rule: Value
    top_k: Value
    is_shared: Value
    is_sampled: Value
    seed: Value
    position: Value

    @property
    def is_greedy(self) -> Value:
        """Where p is one-hot."""
        return (self.temperature < _GREEDY) | self.top_k.equals(1) | self.rule.equals(int(Rule.TOP_DELTA))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Of a row: ``logits``, ``p``, ``scores`` (log p up to a constant) [V]; ``rank`` int64 [V], by logit, then id."""

    logits: Value
    p: Value
    scores: Value
    rank: Value

    @property
    def top(self) -> Value:
        """The most probable token."""
        return self.rank.equals(0).first_true()

    @property
    def entropy(self) -> Value:
        """In nats."""
        return -where(self.p > 0, self.p * where(self.p > 0, self.p, 1.0).log(), 0.0).sum()

    def draw_shared(self, key: Value) -> Value:
        """The token of the greatest score + noise."""
        values = self.scores + gumbel_noise(key, self.scores.indices())
        return values.equals(values.max()).first_true()

    def draw_weighted(self, weights: Value, uniform: Value) -> Value:
        """A token by the cumulative sum of weights [V]; of p where they are all 0."""
        mass = where(weights.sum() > 0, weights, self.p)
        reached = mass.cumulative()
        goal = uniform * reached.at(reached.size() - 1)
        last = (mass > 0).last_true()
        passed = (reached <= goal).sum()
        return where(passed < last, passed, last)


def is_broken(row: Value) -> Value:
    """Whether a row of logits float32 [V] has NaN or +infinity, or nothing above -infinity."""
    has_nan = apply("IsNaN", row, dtype="bool").any()
    most = row.max()
    return has_nan | ~(most < math.inf) | ~(most > -math.inf)


def find_target(row: Value, params: RowParams) -> Target:
    """p of a finite row float32 [V], after temperature and truncation; of the greedy at temperature 1, whole."""
    is_greedy = params.is_greedy
    logits = row.cast("float64")
    scaled = row / where(is_greedy, 1.0, params.temperature).cast("float32")
    scores = (scaled - scaled.max()).cast("float64")
    weights = scores.exp()
    num_vocab = row.size()
    order = _sort(row, num_vocab)
    place = row.indices()
    sorted_weights = weights.at(order)
    count = (logits > -math.inf).sum()
    has_top_k = ~is_greedy & (params.top_k > 0) & (params.top_k < num_vocab)
    count = where(has_top_k & (params.top_k < count), params.top_k, count)
    reached = sorted_weights.cumulative()
    need = params.top_p * reached.at(greatest(count - 1, 0))
    inside = sorted_weights.cumulative(exclusive=True) < need
    by_share = greatest(((place < count) & inside).sum(), 1)
    count = where(~is_greedy & (params.top_p < 1.0), by_share, count)
    by_least = greatest(((place < count) & (sorted_weights >= params.min_p)).sum(), 1)
    count = where(~is_greedy & (params.min_p > 0), by_least, count)
    rank = (place * 0).put(order, place)
    is_kept = rank < count
    kept = where(is_kept, weights, 0.0)
    return Target(logits=logits, p=kept / kept.sum(), scores=where(is_kept, scores, -math.inf), rank=rank)


def _sort(row: Value, count: Value) -> Value:
    """Tokens by falling logit; of equal ones the lowest first, as TopK has it."""
    _, order = row.body.ops("TopK", row.name, count.unsqueeze(0).name, num_outputs=2, axis=-1)
    return Value(row.body, order, "int64")
