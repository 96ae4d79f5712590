"""A toy EAGLE-3 draft over NumPy: it rebuilds each prefix from its own cache and breaks loudly where an entry is stale,
shifted or not the token's parent. Its opinion is the toy target's plus a disturbance, so it is often wrong."""

import numpy as np
from draftsmith.model_repo.runtime.candidates import rank_candidates
from draftsmith.model_repo.runtime.sessions.base import DraftOutputs

FEATURES = 3
HIDDEN = 2
NOTHING = -1


class ToyDraftSession:
    """``DraftSession`` beside a ``ToySession`` made with ``has_features``."""

    def __init__(self, target, *, window=0, disturbance=1.0, num_outputs=8):
        self.model = target.model
        self.num_slots = target.num_slots
        self.max_query_len = 16
        self.feature_size, self.hidden_size = FEATURES, HIDDEN
        self.window = window
        self.num_outputs = num_outputs
        self.steps = []
        self.is_closed = False
        self._disturbance = disturbance
        shape = (target.num_slots, target.capacity + 64)
        self.tokens = np.full(shape, NOTHING)  # of entry e, the token e + 1
        self.before = np.full(shape, NOTHING)  # of entry e, the token e
        self._checked = np.zeros(shape, bool)

    def step(self, inputs):
        rows, queries, columns = inputs.tree_mask.shape
        assert (inputs.features is None) != (inputs.hidden is None)
        assert inputs.token_ids.shape == inputs.positions.shape == (rows, queries) and columns >= queries
        self.steps.append((rows, queries, inputs.features is not None))
        num_logits = inputs.logits_index.shape[1]
        logits = np.zeros((rows, num_logits, self.model.vocab_size), np.float32)
        hidden = np.zeros((rows, num_logits, HIDDEN), np.float32)
        for b in range(rows):
            self._write(inputs, b)
            for n, t in enumerate(inputs.logits_index[b].tolist()):
                prefix = self._prefix(inputs, b, t, columns - queries)
                logits[b, n] = self._opinion(prefix)
                hidden[b, n] = prefix[-1], inputs.positions[b, t] + 1
        ids, best, total = rank_candidates(logits, None, inputs, self.num_outputs)
        return DraftOutputs(token_ids=ids, logits=best, log_sum_exp=total, hidden=hidden)

    def _write(self, inputs, b):
        slot, past, count = inputs.slots[b], int(inputs.past_lengths[b]), int(inputs.query_lengths[b])
        self.tokens[slot, past:] = NOTHING
        for t in range(count):
            entry = past + t
            self.tokens[slot, entry] = inputs.token_ids[b, t]
            if inputs.features is not None:
                token, position, _ = inputs.features[b, t].tolist()
                assert position == inputs.positions[b, t] == entry, "the feature of another position"
                self.before[slot, entry] = token
                if entry and self.tokens[slot, entry - 1] != NOTHING:
                    assert self.tokens[slot, entry - 1] == token, "a feature that does not follow the entry before"

    def _prefix(self, inputs, b, t, num_fed):
        """The tokens that this query stands for: those of the entries that it sees."""
        slot, past = inputs.slots[b], int(inputs.past_lengths[b])
        start = past - num_fed
        seen = start + np.flatnonzero(inputs.tree_mask[b, t])
        entries = [*range(start), *seen.tolist()]
        assert entries[-1] == past + t and len(entries) - 1 == inputs.positions[b, t]
        first = max(0, len(entries) - self.window) if self.window else 0
        tokens = self.tokens[slot, entries[first:]]
        if self.window and inputs.token_ids.shape[1] > 1 and inputs.features is not None:
            tokens = np.maximum(tokens, 0)  # far behind: entries are written for the sake of later ones
        assert (tokens != NOTHING).all(), "an entry that was never written"
        if inputs.hidden is not None:
            token, length = inputs.hidden[b, t].tolist()
            assert (token, length) == (tokens[-2], len(entries) - 1), "the hidden state of another node"
        before = [self.before[slot, first]] if self.before[slot, first] != NOTHING else []
        return [*before, *tokens.tolist()]

    def _opinion(self, prefix):
        rng = np.random.default_rng(np.abs(np.array(prefix[-3:], np.int64)))
        noise = self._disturbance * rng.normal(size=self.model.vocab_size)
        return self.model.score(prefix) + noise.astype(np.float32)

    def copy_slot(self, source, destination, num_tokens):
        for array in (self.tokens, self.before):
            array[destination] = NOTHING
            array[destination, :num_tokens] = array[source, :num_tokens]
            array[source] = NOTHING

    def close(self):
        self.is_closed = True
