"""Measures a session's step times before it serves: what the draft length policy starts from."""

import math
from collections.abc import Callable

import numpy as np

from .sessions.base import StepInputs, TargetSession

_MOST_ROUNDS = 4
_BUDGET_S = 1.5


def measure_step_times(session: TargetSession, clock: Callable[[], float]) -> dict[tuple[int, int], float]:
    """(B rows, T tokens a row) -> milliseconds, the best of a few interleaved rounds (fewer on a slow machine).

    Overwrites the cache.

    Shapes: one row with 1 to 16 tokens, and all slots with 1, 2 and 4, as far as the session allows.
    """
    slots = session.num_slots
    most = min(session.max_query_len, session.capacity)
    shapes = [(1, queries) for queries in (1, 2, 4, 8, 16)] + [(slots, queries) for queries in (1, 2, 4)]
    shapes = sorted({(rows, queries) for rows, queries in shapes if queries <= most})
    times = dict.fromkeys(shapes, math.inf)
    start = clock()
    for _ in range(_MOST_ROUNDS):
        for rows, queries in shapes:
            inputs = _make_inputs(rows, queries)
            begin = clock()
            session.step(inputs)
            times[rows, queries] = min(times[rows, queries], (clock() - begin) * 1e3)
        if clock() - start > _BUDGET_S:
            break
    return times


def _make_inputs(num_rows: int, num_queries: int) -> StepInputs:
    places = np.broadcast_to(np.arange(num_queries, dtype=np.int32), (num_rows, num_queries))
    triangle = np.tril(np.ones((num_queries, num_queries), np.bool_))
    return StepInputs(
        slots=np.arange(num_rows, dtype=np.int32),
        token_ids=np.zeros((num_rows, num_queries), np.int32),
        positions=np.ascontiguousarray(places),
        past_lengths=np.zeros(num_rows, np.int32),
        query_lengths=np.full(num_rows, num_queries, np.int32),
        tree_mask=np.ascontiguousarray(np.broadcast_to(triangle, (num_rows, num_queries, num_queries))),
        logits_index=np.ascontiguousarray(places),
    )
