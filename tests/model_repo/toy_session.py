"""A toy target over NumPy: it keeps a real cache a slot and breaks loudly where a step is not what the contract says.

Its logits depend on the last two tokens (few classes, so the text repeats itself and n-gram drafts are often right) and
a little on every cached token at its position (so drafts are often wrong, and a stale or missing cache entry shows).
"""

import numpy as np
from draftsmith.model_repo.runtime.sessions.base import StepInputs, StepOutputs

EMPTY = -1


class ToyModel:
    """``score(tokens)``: float32 [V], the logits after a prefix."""

    def __init__(self, *, vocab_size=300, hot_ids=tuple(range(240, 256)), end_id=2, end_bias=2.0, seed=0, drift=1.5):
        rng = np.random.default_rng(seed)
        self.vocab_size = vocab_size
        self._by_last_two = rng.normal(size=(19, vocab_size)).astype(np.float32)
        self._by_last_two[:, list(hot_ids)] += 5
        self._by_last_two[:, end_id] += end_bias
        self._by_all = (drift * rng.normal(size=(31, vocab_size))).astype(np.float32)

    def score(self, tokens):
        tokens = np.asarray(tokens, np.int64)
        assert (tokens >= 0).all(), "the step reads a cache entry that was never written"
        last_two = int((tokens[-2:] * (7, 3)[-len(tokens[-2:]) :]).sum())
        everything = int(((tokens + 1) * (np.arange(len(tokens)) % 97 + 1)).sum())
        return self._by_last_two[last_two % 19] + self._by_all[everything % 31]


class ToySession:
    """``TargetSession`` over a ``ToyModel``. ``steps`` records (rows, tokens a row) of every step."""

    def __init__(self, model=None, *, num_slots=4, capacity=200, max_query_len=64, min_query_len=1, has_features=False):
        self.model = model or ToyModel()
        self.num_slots = num_slots
        self.capacity = capacity
        self.vocab_size = self.model.vocab_size
        self.max_query_len = max_query_len
        self.min_query_len = min_query_len
        self.exact_trees = True
        self.has_features = has_features
        self.cache = np.full((num_slots, capacity), EMPTY)
        self.steps = []
        self.num_copies = 0
        self.num_paths = 0
        self.is_closed = False
        self.spoil = {}  # token id -> logits row to give instead, after a query of that token
        self.error = None
        self._logits = np.empty(0, np.float32)

    def step(self, inputs: StepInputs) -> StepOutputs:
        if self.error is not None:
            raise self.error
        rows, queries = inputs.token_ids.shape
        self._check(inputs, rows, queries)
        self.steps.append((rows, queries))
        size = rows * inputs.logits_index.shape[1] * self.vocab_size
        if self._logits.size < size:
            self._logits = np.empty(size, np.float32)
        self._logits[:] = np.nan  # what an earlier step gave is not valid any more
        logits = self._logits[:size].reshape(rows, -1, self.vocab_size)
        for b in range(rows):
            self._step_row(inputs, b, logits[b])
        return StepOutputs(logits=logits, features=self._features(inputs) if self.has_features else None)

    def _features(self, inputs):
        """(token, position, 0) of each query: what a draft needs to notice a feature that is not its own."""
        zeros = np.zeros_like(inputs.positions)
        return np.stack([inputs.token_ids, inputs.positions, zeros], axis=-1).astype(np.float32)

    def _check(self, inputs, rows, queries):
        assert not self.is_closed
        assert 1 <= rows <= self.num_slots and 1 <= queries <= self.max_query_len
        assert len(set(inputs.slots.tolist())) == rows
        assert inputs.tree_mask.shape == (rows, queries, queries) and inputs.tree_mask.flags.c_contiguous
        assert (inputs.query_lengths >= 1).all() and (inputs.query_lengths <= queries).all()
        assert (inputs.past_lengths + max(queries, self.min_query_len) <= self.capacity).all()
        assert (inputs.logits_index < inputs.query_lengths[:, None]).all()
        arrays = (inputs.slots, inputs.token_ids, inputs.positions, inputs.past_lengths, inputs.logits_index)
        assert all(array.dtype == np.int32 for array in arrays)

    def _step_row(self, inputs, b, logits):
        past, count = int(inputs.past_lengths[b]), int(inputs.query_lengths[b])
        cache = self.cache[inputs.slots[b]]
        cache[past:] = EMPTY
        cache[past : past + count] = inputs.token_ids[b, :count]
        scored = {}
        for n, t in enumerate(inputs.logits_index[b].tolist()):
            if t not in scored:
                seen = np.flatnonzero(inputs.tree_mask[b, t, :count])
                assert seen.max() == t and inputs.positions[b, t] == past + len(seen) - 1
                scored[t] = self.model.score(np.concatenate([cache[:past], inputs.token_ids[b, seen]]))
                scored[t] = self.spoil.get(int(inputs.token_ids[b, t]), scored[t])
            logits[n] = scored[t]

    def keep_path(self, slot, start, sources):
        assert list(sources) == sorted(set(sources)) and min(sources) >= start, sources
        self.cache[slot, start : start + len(sources)] = self.cache[slot, list(sources)]
        self.cache[slot, start + len(sources) :] = EMPTY
        self.num_paths += 1

    def copy_slot(self, source, destination, num_tokens):
        self.num_copies += 1
        self.cache[destination] = EMPTY
        self.cache[destination, :num_tokens] = self.cache[source, :num_tokens]
        self.cache[source] = EMPTY

    def close(self):
        self.is_closed = True
