"""Drafts with a draft model: its cache follows the target, then it grows a tree a row, all rows a level at a time.

Entry e of the draft's cache (column and position e) holds token e + ``shift``: an EAGLE-3 draft (shift 1) pairs the
target's features of position e with the token behind it, a language model of its own (shift 0) has the token itself.
Entries of a tree are written behind the committed ones and forgotten; those of accepted tokens are written anew with
the target's features at the next step.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .candidates import find_candidate_chances
from .draft_policy import DraftGuide
from .draft_tree import NO_DRAFT, ROOT, DraftTree, chain_mask
from .drafter import DraftQuery
from .level_value import LevelOffer
from .noise import position_key
from .pending_features import PendingFeatures
from .sessions.base import BoolArray, DraftInputs, DraftOutputs, DraftSession, FloatArray
from .tree_growth import TreeGrowth

_CHUNK_MARGIN = 16  # rows that are further behind than this catch up alone, or the others would be padded


@dataclass(slots=True)
class _Slot:
    """``num_entries`` of the draft's cache that are committed, and features beyond them."""

    num_entries: int
    pending: PendingFeatures


class ModelDrafter:
    """See ``Drafter`` and ``FollowsTarget``. ``guide`` says how deep trees grow."""

    def __init__(
        self, session: DraftSession, guide: DraftGuide, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._session = session
        self._guide = guide
        self._clock = clock
        self._shift = 1 if session.feature_size else 0
        self._slots = [
            _Slot(0, PendingFeatures(session.feature_size, session.window)) for _ in range(session.num_slots)
        ]

    def observe(self, slot: int, position: int, features: FloatArray | None, count: int) -> None:
        """See ``FollowsTarget``."""
        state = self._slots[slot]
        if position == 0:
            state.num_entries = 0
            state.pending.clear()
        if self._shift and features is not None:
            state.pending.append(position, features[:count])

    def copy_slot(self, source: int, destination: int) -> None:
        """See ``FollowsTarget``."""
        self._session.copy_slot(source, destination, self._slots[source].num_entries)
        self._slots[source], self._slots[destination] = self._slots[destination], self._slots[source]

    def close(self) -> None:
        """See ``FollowsTarget``."""
        self._session.close()

    def propose(self, queries: Sequence[DraftQuery]) -> list[DraftTree]:
        """See ``Drafter``."""
        drafts = [NO_DRAFT] * len(queries)
        wanted = [i for i, query in enumerate(queries) if query.limit > 0 and query.depth > 0]
        if wanted:
            for index, tree in zip(wanted, self._grow([queries[i] for i in wanted]), strict=True):
                drafts[index] = tree
        return drafts

    def _grow(self, queries: Sequence[DraftQuery]) -> list[DraftTree]:
        rates = self._guide.rates()
        trees = [TreeGrowth(width=q.width, is_sampled=q.seed is not None, rates=rates) for q in queries]
        inputs, outputs = self._catch_up(queries)
        levels = _Levels(queries, trees, [self._slots[query.slot].num_entries for query in queries])
        rows = list(range(len(queries)))  # that still grow
        for level in itertools.count(1):
            chances = find_candidate_chances(inputs, outputs).tolist()
            for row, ids, values in zip(rows, outputs.token_ids.tolist(), chances, strict=True):
                trees[row].add_level(ids, values)
                self._guide.observe_children(trees[row].best_children())
            growing = [place for place, row in enumerate(rows) if trees[row].frontier and queries[row].depth > level]
            rows = [rows[place] for place in growing]
            if not rows or not self._narrow([trees[row] for row in rows], level):
                break
            begin = self._clock()
            inputs = levels.next_inputs(rows, None if outputs.hidden is None else outputs.hidden[growing], level)
            outputs = self._session.step(inputs)
            self._guide.observe_level(inputs.token_ids.size, (self._clock() - begin) * 1e3)
        return [tree.finish(query.limit) for tree, query in zip(trees, queries, strict=True)]

    def _narrow(self, trees: Sequence[TreeGrowth], level: int) -> bool:
        """Keep of each tree's frontier what the guide says; whether anything is left."""
        offer = LevelOffer(nodes=[tree.followed for tree in trees], num_rows=len(trees), depth=level)
        width = self._guide.pick_width(offer)
        for tree in trees:
            tree.narrow(width)
        return width > 0

    def _catch_up(self, queries: Sequence[DraftQuery]) -> tuple[DraftInputs, DraftOutputs]:
        """Write what the target has committed; the last entry's candidates are each row's first level."""
        starts = [self._find_start(query) for query in queries]
        ends = [len(query.tokens) - self._shift for query in queries]
        for index, query in enumerate(queries):
            if ends[index] - starts[index] > _CHUNK_MARGIN:
                starts[index] = self._write_alone(query, starts[index], ends[index] - 1)
        inputs = self._make_inputs(queries, starts, ends)
        outputs = self._session.step(inputs)
        for query, end in zip(queries, ends, strict=True):
            state = self._slots[query.slot]
            state.num_entries = end
            if self._shift:
                state.pending.drop(end)
        return inputs, outputs

    def _find_start(self, query: DraftQuery) -> int:
        """The first entry to write: a window makes older ones useless, and one layer's entries need no others."""
        state = self._slots[query.slot]
        if not self._session.window:
            return state.num_entries
        return max(state.num_entries, len(query.tokens) - self._shift - self._session.window)

    def _write_alone(self, query: DraftQuery, start: int, end: int) -> int:
        most = self._session.max_query_len
        while start < end:
            stop = min(start + most, end)
            self._session.step(self._make_inputs([query], [start], [stop]))
            start = stop
        return start

    def _make_inputs(self, queries: Sequence[DraftQuery], starts: Sequence[int], ends: Sequence[int]) -> DraftInputs:
        """Entries ``starts[b]`` to ``ends[b]`` - 1 of each row as one step; candidates of the last."""
        counts = np.array(ends, np.int32) - np.array(starts, np.int32)
        past = np.array(starts, np.int32)
        num_rows, num_tokens = len(queries), int(counts.max())
        token_ids = np.zeros((num_rows, num_tokens), np.int32)
        size = self._session.feature_size
        features = np.zeros((num_rows, num_tokens, size), np.float32) if size else None
        for row, (query, start, end) in enumerate(zip(queries, starts, ends, strict=True)):
            token_ids[row, : end - start] = query.tokens[start + self._shift : end + self._shift]
            if features is not None:
                features[row, : end - start] = self._slots[query.slot].pending.rows(start, end)
        return DraftInputs(
            slots=np.array([query.slot for query in queries], np.int32),
            token_ids=token_ids,
            positions=past[:, None] + np.arange(num_tokens, dtype=np.int32),
            past_lengths=past,
            query_lengths=counts,
            tree_mask=chain_mask(num_rows, num_tokens),
            logits_index=(counts - 1)[:, None],
            features=features,
            hidden=None,
            **_noise(queries, [end + self._shift for end in ends], 1),
        )


class _Levels:
    """The inputs of the levels behind the first: which nodes are fed, whom they see, what they continue.

    Every row feeds as many nodes as the widest (a dummy repeats a node and is not looked at), so rows stay aligned.
    """

    def __init__(self, queries: Sequence[DraftQuery], trees: Sequence[TreeGrowth], num_entries: Sequence[int]) -> None:
        self._queries = queries
        self._trees = trees
        self._entries = np.array(num_entries, np.int32)
        self._num_fed = 0
        self._columns: list[dict[int, int]] = [{} for _ in queries]  # node -> its column among the fed ones
        self._seen: list[list[list[int]]] = [[] for _ in queries]  # of each fed node, the columns that it sees

    def next_inputs(self, rows: Sequence[int], hidden: FloatArray | None, level: int) -> DraftInputs:
        """Feed the frontier of the trees ``rows``, nodes of depth ``level``.

        ``hidden`` [B, N, d]: what the nodes fed before gave, of the same rows.
        """
        trees = [self._trees[row] for row in rows]
        queries = [self._queries[row] for row in rows]
        entries = self._entries[rows]
        num_rows, width = len(rows), max(len(tree.frontier) for tree in trees)
        token_ids = np.empty((num_rows, width), np.int32)
        sources = np.empty((num_rows, width), np.int64)
        for place, (row, tree) in enumerate(zip(rows, trees, strict=True)):
            fed = tree.frontier + tree.frontier[-1:] * (width - len(tree.frontier))
            token_ids[place] = [tree.token_ids[node] for node in fed]
            sources[place] = [tree.sources[node] for node in fed]
            for column, node in enumerate(fed, start=self._num_fed):
                self._feed(row, node, column)
        mask = self._mask(rows, width)
        past = entries + self._num_fed
        self._num_fed += width
        if hidden is not None:
            hidden = np.take_along_axis(hidden, sources[..., None], axis=1)
        return DraftInputs(
            slots=np.array([query.slot for query in queries], np.int32),
            token_ids=token_ids,
            positions=np.repeat((entries + (level - 1))[:, None], width, axis=1),
            past_lengths=past,
            query_lengths=np.full(num_rows, width, np.int32),
            tree_mask=mask,
            logits_index=np.tile(np.arange(width, dtype=np.int32), (num_rows, 1)),
            features=None,
            hidden=hidden,
            **_noise(queries, [len(query.tokens) + level for query in queries], width),
        )

    def _feed(self, row: int, node: int, column: int) -> None:
        """Note who a node sees: its ancestors and itself."""
        parent = self._trees[row].parents[node]
        above = [] if parent == ROOT else self._seen[row][self._columns[row][parent]]
        self._seen[row].append([*above, column])
        self._columns[row][node] = column

    def _mask(self, rows: Sequence[int], width: int) -> BoolArray:
        if width == 1 and all(len(self._seen[row][-1]) == len(self._seen[row]) for row in rows):
            return np.ones((len(rows), 1, 1), np.bool_)  # chains see all that is cached
        mask = np.zeros((len(rows), width, self._num_fed + width), np.bool_)
        for place, row in enumerate(rows):
            for index in range(width):
                mask[place, index, self._seen[row][self._num_fed + index]] = True
        return mask


def _noise(queries: Sequence[DraftQuery], positions: Sequence[int], width: int) -> dict[str, Any]:
    """``noise_keys`` and ``inverse_temperature`` of candidates for absolute token indexes ``positions``, one a row."""
    keys = np.zeros(len(queries), np.uint64)
    for row, (query, position) in enumerate(zip(queries, positions, strict=True)):
        if query.seed is not None:
            keys[row] = position_key(query.seed, position)
    inverse = np.array([query.inverse_temperature for query in queries], np.float32)
    return {
        "noise_keys": np.repeat(keys.view(np.int64)[:, None], width, axis=1),
        "inverse_temperature": np.repeat(inverse[:, None], width, axis=1),
    }
