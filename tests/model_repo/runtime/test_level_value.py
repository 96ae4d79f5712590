"""Whether one more level of a draft tree pays: expected gains and measured times, worked by hand."""

import pytest
from draftsmith.model_repo.runtime.level_value import ChildCounts, LevelCost


def test_an_unseen_node_expects_children_of_every_class_alike():
    counts = ChildCounts(first=2, count=2)
    rates = [0.0, 0.0, 0.2, 0.8]
    assert counts.expect_gain(0.5, 2, rates, price=0.0) == pytest.approx(0.5 * (0.2 + 0.8) / 2)


def test_a_child_that_is_not_worth_scoring_costs_nothing():
    counts = ChildCounts(first=2, count=2)
    rates = [0.0, 0.0, 0.2, 0.8]
    assert counts.expect_gain(0.5, 3, rates, price=0.3) == pytest.approx((0.5 * 0.8 - 0.3) / 2)
    assert counts.expect_gain(0.5, 3, rates, price=0.5) == 0.0


def test_children_are_expected_as_they_were_of_late_by_their_parents_class():
    counts = ChildCounts(first=0, count=2)
    for _ in range(500):
        counts.add(0, 0)
        counts.add(1, 1)
    rates = [0.1, 0.9]
    sure, unsure = (counts.expect_gain(1.0, parent, rates, price=0.0) for parent in (1, 0))
    # 99.3 of late against 8 that all nodes' children stand for, half of each class
    assert sure == pytest.approx((99.34 * 0.9 + 8 * 0.5) / 107.34, abs=5e-3)
    assert unsure == pytest.approx((99.34 * 0.1 + 8 * 0.5) / 107.34, abs=5e-3)


def test_a_width_never_seen_is_tried_and_a_slow_step_does_not_rule_one_out():
    cost = LevelCost()
    assert cost.estimate(1) == 0.0
    cost.observe(1, 9.0)  # the first sets things up
    cost.observe(1, 1.0)
    assert [cost.estimate(1), cost.estimate(3)] == [1.0, 1.0]
    cost.observe(3, 50.0)
    assert cost.estimate(3) == 3.0
    cost.observe(3, 1.5)
    assert cost.estimate(3) == 1.5
    cost.observe(3, 50.0)  # an outlier counts as twice the old
    assert cost.estimate(3) == pytest.approx(1.5 + 0.2 * 1.5)
