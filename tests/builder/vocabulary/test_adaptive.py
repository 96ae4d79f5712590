"""Entropies, and a table fitted where entropy tells how many candidates are needed."""

import numpy as np
import pytest
from draftsmith.builder.spec.ranking import Ranking
from draftsmith.builder.vocabulary import adaptive
from draftsmith.builder.vocabulary.adaptive import AdaptiveCandidates, entropy_of_best, fit_adaptive
from draftsmith.builder.vocabulary.hidden_states import HeadStates


def test_entropy_of_known_distributions():
    found = entropy_of_best(np.array([[0.0, 0.0, -np.inf], [100.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))
    np.testing.assert_allclose(found, [np.log(2), 0, np.log(3)], atol=1e-12)
    assert entropy_of_best(np.zeros(40)) == pytest.approx(np.log(16))


def test_the_table_is_read_by_entropy_and_the_unknown_takes_the_most():
    table = AdaptiveCandidates(limits=(0.5, 2.0), num_candidates=(256, 512, 1024))
    assert [table.choose(value) for value in (0.0, 0.5, 3.0, float("nan"))] == [256, 512, 1024, 1024]


def test_fewer_candidates_serve_where_the_parent_was_sure(monkeypatch):
    """Even rows are sure and their children's best token ranks first; odd rows are not, and theirs ranks fourth."""
    monkeypatch.setattr(adaptive, "CHOICES", (1, 2, 4, 8))
    sure, unsure = np.array([9.0, 0, 0, 0, 0, 0, 0, 0]), np.array([0.0, 0, 0, 0.1, 0, 0, 0, 0])
    hidden = np.array([sure, unsure] * 50, np.float32)
    states = HeadStates(
        hidden=hidden,
        tasks=("a",),
        task_index=np.zeros(100, np.int64),
        parent_index=np.arange(100) - np.arange(100) % 2 - (np.arange(100) % 2 == 0),
    )
    states.parent_index[0::2] = np.arange(0, 100, 2)  # a sure row's parent is sure, an unsure row's is unsure
    states.parent_index[1::2] = np.arange(1, 100, 2)
    ranking = Ranking(
        down=np.eye(8, dtype=np.float32),
        vocabulary=np.eye(8, dtype=np.float32),
        num_candidates=4,
        prior=np.array([3, 2, 1, 0, -1, -2, -3, -4], np.float32),
    )
    table, mean = fit_adaptive(states, np.eye(8, dtype=np.float32), ranking)
    assert table.choose(0.0) == 1
    assert table.choose(2.1) == 4
    assert mean == pytest.approx(2.5)
    assert table.to_dict() == {"limits": list(table.limits), "num_candidates": list(table.num_candidates)}
