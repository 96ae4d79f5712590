import functools
import itertools

import numpy as np
import pytest
from draftsmith.model_repo.runtime import acceptance
from draftsmith.model_repo.runtime.acceptance import accept_sampled_chain, accepts, draw_index, find_residual
from scipy import stats

VOCAB = 4


def test_a_token_is_accepted_with_the_ratio_of_its_probabilities():
    p, q = np.array([0.3, 0.5, 0.2]), np.array([0.6, 0.1, 0.3])
    assert accepts(p, q, 0, 0.49) and not accepts(p, q, 0, 0.51)
    assert accepts(p, q, 1, 0.999)
    assert not accepts(np.array([0.0, 1.0]), np.array([0.5, 0.5]), 0, 1e-12)


def test_the_residual_is_what_the_draft_gave_too_little_of():
    np.testing.assert_allclose(find_residual(np.array([0.3, 0.5, 0.2]), np.array([0.6, 0.1, 0.3])), [0, 1, 0])
    same = np.array([0.25, 0.75])
    assert (find_residual(same, same) == same).all()


def test_an_index_of_probability_zero_is_never_drawn():
    p = np.array([0.0, 0.5, 0.0, 0.5, 0.0])
    assert [draw_index(p, u) for u in (1e-12, 0.4999, 0.5001, 1 - 1e-16)] == [1, 1, 3, 3]


def test_a_greedy_target_takes_its_own_token_whatever_the_draft_says():
    p, q = np.array([0.0, 1.0, 0.0]), np.array([0.2, 0.3, 0.5])  # q(a) = 0.2, and p is greedy: always b
    for token, uniform in itertools.product(range(3), (0.01, 0.5, 0.99)):
        result = accept_sampled_chain([p, p], [q], [token], [uniform, 0.3])
        assert (result.num_accepted, result.next_token) == ((1, 1) if token == 1 else (0, 1))


@functools.cache
def distribution_after(seed, prefix):
    return np.random.default_rng([seed, *prefix]).dirichlet(np.ones(VOCAB))


def target_after(prefix):
    return distribution_after(1, tuple(prefix))


def draft_after(prefix):
    return distribution_after(2, tuple(prefix))


def draw_three(rng):
    """Three tokens from chains of two drafted tokens, the way the loop does it."""
    tokens: list[int] = []
    while len(tokens) < 3:
        drafted, qs = [], []
        for _ in range(2):
            qs.append(draft_after([*tokens, *drafted]))
            drafted.append(int(rng.choice(VOCAB, p=qs[-1])))
        ps = [target_after([*tokens, *drafted[:i]]) for i in range(3)]
        result = accept_sampled_chain(ps, qs, drafted, rng.random(3).tolist())
        tokens += [*drafted[: result.num_accepted], result.next_token]
    return tuple(tokens[:3])


def measure_p_value(count=4000):
    rng = np.random.default_rng(3)
    seen = np.zeros((VOCAB,) * 3)
    for _ in range(count):
        seen[draw_three(rng)] += 1
    expected = np.zeros_like(seen)
    for triple in itertools.product(range(VOCAB), repeat=3):
        expected[triple] = np.prod([target_after(triple[:i])[triple[i]] for i in range(3)])
    return stats.chisquare(seen.ravel(), count * expected.ravel() / expected.sum()).pvalue


def test_three_tokens_have_the_targets_joint_distribution():
    assert measure_p_value() > 1e-3


def test_the_distribution_is_wrong_where_the_residual_is_replaced_by_p(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(acceptance, "find_residual", lambda p, q: p)
    assert measure_p_value() < 1e-9
