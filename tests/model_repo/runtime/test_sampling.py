import numpy as np
import pytest
from draftsmith.model_repo.contract.params import SamplingParams
from draftsmith.model_repo.runtime.noise import gumbel, position_key, token_bits
from draftsmith.model_repo.runtime.sampling import (
    choose_top,
    draw,
    find_probabilities,
    find_top_k,
    find_top_p,
    truncate,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats


def scores_of(values):
    return np.array(values, np.float32)


def test_ties_go_to_the_lowest_id():
    assert choose_top(scores_of([1, 3, 3, 2])) == 1
    assert find_top_k(scores_of([3, 1, 3, 3]), 2).tolist() == [0, 2]


def test_top_k_never_takes_a_banned_token():
    assert find_top_k(scores_of([-np.inf, 1, -np.inf]), 2).tolist() == [1]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(0, 10_000), st.sampled_from([0.1, 3.0, 30.0]))
def test_top_k_is_that_of_a_full_sort(k, seed, width):
    scores = np.random.default_rng(seed).normal(scale=width, size=300).astype(np.float32).round(1)
    expected = np.sort(np.argsort(-scores, kind="stable")[:k])
    assert find_top_k(scores, k).tolist() == expected.tolist()


def test_top_p_keeps_tokens_until_the_share_is_reached():
    weights = scores_of([0.1, 0.4, 0.3, 0.2])
    assert find_top_p(weights, 0.35).tolist() == [1]
    assert find_top_p(weights, 0.65).tolist() == [1, 2]
    assert find_top_p(weights, 0.75).tolist() == [1, 2, 3]
    assert find_top_p(weights, 0.95).tolist() == [0, 1, 2, 3]


def test_top_p_always_keeps_the_most_probable_token():
    assert find_top_p(scores_of([1.0, 0.2]), 1e-9).tolist() == [0]


def test_min_p_is_relative_to_the_most_probable_token():
    logits = np.log(scores_of([0.5, 0.24, 0.26]))
    ids, _ = truncate(logits, SamplingParams(temperature=1.0, min_p=0.5))
    assert ids.tolist() == [0, 2]


@pytest.mark.parametrize(
    "setting",
    [{"temperature": 0.5}, {"temperature": 2.0, "top_k": 7}, {"temperature": 1.0, "top_p": 0.8},
     {"temperature": 1.3, "top_k": 20, "top_p": 0.9, "min_p": 0.05}],
)  # fmt: skip
def test_probabilities_are_those_of_transformers(setting):
    transformers = pytest.importorskip("transformers", reason="needs transformers as the oracle")
    torch = pytest.importorskip("torch", reason="needs torch as the oracle")
    scores = np.random.default_rng(1).normal(scale=3, size=200).astype(np.float32)
    warped = torch.tensor(scores)[None]
    steps = [transformers.TemperatureLogitsWarper(setting["temperature"])]
    if "top_k" in setting:
        steps.append(transformers.TopKLogitsWarper(setting["top_k"]))
    if "top_p" in setting:
        steps.append(transformers.TopPLogitsWarper(setting["top_p"]))
    if "min_p" in setting:
        steps.append(transformers.MinPLogitsWarper(setting["min_p"]))
    for step in steps:
        warped = step(None, warped)
    expected = torch.softmax(warped.double(), -1)[0].numpy()
    np.testing.assert_allclose(find_probabilities(scores, SamplingParams(**setting)), expected, atol=1e-6)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.01, 1.0, 4.0, 100.0]), st.sampled_from([1e-4, 0.5, 1.0, 50.0]))
def test_pruned_noise_gives_the_token_of_all_noise(seed, width, temperature):
    scores = np.random.default_rng(seed).normal(scale=width, size=500).astype(np.float32)
    params = SamplingParams(temperature=temperature)
    key = position_key(seed, 3)
    logits = scores / np.float32(temperature)
    everything = (logits - logits.max()) + gumbel(token_bits(key, np.arange(500)))
    assert draw(scores, params, key) == int(everything.argmax())


@pytest.mark.parametrize(
    "setting",
    [{}, {"top_k": 4}, {"top_p": 0.8}, {"min_p": 0.2, "temperature": 1.5}],
    ids=lambda s: "-".join(s) or "plain",
)
def test_draws_follow_the_probabilities(setting):
    params = SamplingParams(**{"temperature": 0.8, **setting})
    scores = np.random.default_rng(2).normal(size=12).astype(np.float32)
    expected = find_probabilities(scores, params) * 6000
    drawn = np.bincount([draw(scores, params, position_key(9, p)) for p in range(6000)], minlength=12)
    possible = expected > 0
    assert not drawn[~possible].any()
    assert stats.chisquare(drawn[possible], expected[possible]).pvalue > 1e-4


def test_a_temperature_near_zero_and_a_top_k_of_one_are_greedy():
    for params in (SamplingParams(temperature=1e-6), SamplingParams(temperature=5.0, top_k=1)):
        assert params.is_greedy
        assert find_probabilities(scores_of([1, 3, 3]), params).tolist() == [0, 1, 0]
    assert draw(scores_of([1, 3, 3, 2]), SamplingParams(temperature=1.0, top_k=1), 5) == 1
