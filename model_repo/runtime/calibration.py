"""Measures a session's step times before it serves: what the draft length policy starts from."""

import math
from collections.abc import Callable

import numpy as np

from .sessions.base import StepInputs, TargetSession

_NUM_ROUNDS = 6
_BUDGET_S = 1.0  # for the shapes of one row, and again for those of all slots


def measure_step_times(session: TargetSession, clock: Callable[[], float]) -> dict[tuple[int, int], float]:
    """(B rows, T tokens a row) -> milliseconds, the best of a few interleaved rounds (fewer on a slow machine).

    Overwrites the cache.

    Shapes: one row with 1 to 16 tokens, and all slots with 1, 2 and 4, as far as the session allows.
    """
    slots = session.num_slots
    most = min(session.max_query_len, session.capacity)
    times: dict[tuple[int, int], float] = {}
    for rows, choices in ((1, (1, 2, 4, 8, 16)), (slots, (1, 2, 4))):
        start = clock()
        for _ in range(_NUM_ROUNDS):
            for queries in (q for q in choices if q <= most):
                inputs = _make_inputs(rows, queries)
                begin = clock()
                session.step(inputs)
                ms = (clock() - begin) * 1e3
                times[rows, queries] = min(times.get((rows, queries), math.inf), ms)
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
