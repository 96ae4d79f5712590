import numpy as np
import pytest
from draftsmith.model_repo.runtime.draft_policy import FixedDraftSize
from draftsmith.model_repo.runtime.logprobs import measure_logprobs

from tests.model_repo.decoding import decode, make_request
from tests.model_repo.toy_session import ToyModel


def log_softmax(logits):
    logits = logits.astype(np.float64)
    return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())


def test_logprobs_are_the_log_softmax_of_the_raw_logits():
    logits = np.random.default_rng(0).normal(scale=4, size=1000).astype(np.float32)
    entry = measure_logprobs(logits, 17, 5)
    expected = log_softmax(logits)
    assert entry.chosen == pytest.approx(expected[17], abs=1e-5)
    assert list(entry.top_ids) == np.argsort(-logits, kind="stable")[:5].tolist()
    np.testing.assert_allclose(entry.top_logprobs, np.sort(expected)[::-1][:5], atol=1e-5)


def test_equal_logits_are_listed_lowest_id_first():
    assert measure_logprobs(np.array([1, 2, 2, 0], np.float32), 0, 3).top_ids == (1, 2, 0)


@pytest.mark.parametrize("num_top", [0, 1, 5])
def test_answers_carry_raw_logprobs_at_every_position_whatever_the_temperature(num_top):
    prompt = (250, 251, 252)
    request = make_request(
        prompt,
        max_tokens=40,
        end_ids=(),
        temperature=0.3,
        seed=3,
        repetition_penalty=1.3,
        return_log_probs=True,
        num_top_log_probs=num_top,
    )
    answer = decode(request, policy=FixedDraftSize(7))
    assert answer.last.num_accepted_draft_tokens > 0
    model, tokens = ToyModel(), list(prompt)
    for token, value, (ids, values) in zip(answer.ids, answer.logprobs, answer.top, strict=True):
        expected = log_softmax(model.score(tokens))
        assert value == pytest.approx(expected[token], abs=1e-5)
        assert list(ids) == np.argsort(-expected, kind="stable")[:num_top].tolist()
        np.testing.assert_allclose(values, expected[list(ids)], atol=1e-5)
        tokens.append(token)


def test_no_logprobs_are_sent_where_none_are_asked_for():
    assert all(u.token_logprobs is None for u in decode(make_request()).updates)
