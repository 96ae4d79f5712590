import itertools

import pytest
from draftsmith.model_repo.runtime.calibration import measure_step_times
from draftsmith.model_repo.runtime.cost_model import CostModel

from tests.model_repo.toy_session import ToySession


def test_step_times_are_measured_for_one_row_and_for_all_slots():
    ticks = itertools.count()
    times = measure_step_times(ToySession(num_slots=4), lambda: next(ticks) * 1e-3)
    assert set(times) == {(1, 1), (1, 2), (1, 4), (1, 8), (1, 16), (4, 1), (4, 2), (4, 4)}
    assert list(times.values()) == pytest.approx([1.0] * 8)


def test_a_slow_machine_is_measured_once():
    ticks = itertools.count()
    session = ToySession(num_slots=1, max_query_len=4, capacity=8)
    times = measure_step_times(session, lambda: next(ticks) * 1.0)
    assert set(times) == {(1, 1), (1, 2), (1, 4)}
    assert len(session.steps) == 6  # one round for each of the two sets, which are the same here


def test_a_time_that_was_measured_too_long_does_not_hide_what_longer_drafts_cost():
    cost = CostModel()
    cost.calibrate({(1, 1): 7.0, (1, 2): 79.0, (1, 4): 7.5, (1, 8): 9.0})
    assert cost.estimate(1, 2) == pytest.approx(7.5)
    assert cost.estimate(1, 6) == pytest.approx(8.25)
