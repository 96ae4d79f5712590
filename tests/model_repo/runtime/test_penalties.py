import numpy as np
import pytest
from draftsmith.model_repo.contract.params import SamplingParams
from draftsmith.model_repo.runtime.penalties import Penalties, TokenCounts


def apply(params, *, prompt=(1,), output=(), end_ids=(), bad=()):
    penalties = Penalties(params, np.array(prompt, np.int32), end_ids, bad)
    for token in output:
        penalties.append(token)
    scores = np.array([2, -2, 4, 1, 1, 1, 1, 1], np.float32)
    penalties.apply(scores)
    return scores.tolist()


def test_the_repetition_penalty_counts_prompt_and_output_once_each():
    assert apply(SamplingParams(repetition_penalty=2.0), prompt=(1, 1), output=(2, 2)) == [2, -4, 2, 1, 1, 1, 1, 1]


def test_the_repetition_penalty_is_that_of_transformers():
    transformers = pytest.importorskip("transformers", reason="needs transformers as the oracle")
    torch = pytest.importorskip("torch", reason="needs torch as the oracle")
    scores = torch.tensor([[2, -2, 4, 1, 1, 1, 1, 1.0]])
    expected = transformers.RepetitionPenaltyLogitsProcessor(1.3)(torch.tensor([[1, 2, 2]]), scores)
    np.testing.assert_allclose(
        apply(SamplingParams(repetition_penalty=1.3), prompt=(1,), output=(2, 2)), expected[0].numpy(), rtol=1e-6
    )


def test_presence_and_frequency_count_the_output_alone():
    params = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25)
    assert apply(params, prompt=(1, 3), output=(2, 2, 0)) == [1.25, -2, 3, 1, 1, 1, 1, 1]


def test_end_tokens_are_suppressed_until_min_tokens_are_out():
    params = SamplingParams(min_tokens=2)
    assert apply(params, output=(5,), end_ids=(0, 2)) == [-np.inf, -2, -np.inf, 1, 1, 1, 1, 1]
    assert apply(params, output=(5, 5), end_ids=(0, 2)) == [2, -2, 4, 1, 1, 1, 1, 1]


def test_a_bad_word_is_banned_at_its_last_token_also_across_the_prompts_end():
    bad = [(3,), (1, 5), (6, 1, 7)]
    assert apply(SamplingParams(), prompt=(6, 1), bad=bad)[3:] == [-np.inf, 1, -np.inf, 1, -np.inf]
    assert apply(SamplingParams(), prompt=(6, 1), output=(4,), bad=bad)[3:] == [-np.inf, 1, 1, 1, 1]
    assert apply(SamplingParams(), prompt=(1,), output=(6, 1), bad=bad)[3:] == [-np.inf, 1, -np.inf, 1, -np.inf]
    assert apply(SamplingParams(), prompt=(1,), bad=[(6, 1, 7)])[3:] == [1, 1, 1, 1, 1]


def test_neutral_settings_are_seen_as_neutral():
    prompt = np.array([1], np.int32)
    assert Penalties(SamplingParams(), prompt, (2,), []).is_neutral
    waiting = Penalties(SamplingParams(min_tokens=1), prompt, (2,), [])
    assert not waiting.is_neutral
    waiting.append(3)
    assert waiting.is_neutral


def test_counts_grow_beyond_their_first_size():
    counts = TokenCounts()
    for token in [*range(100), 7]:
        counts.add(token)
    assert counts.ids.tolist() == list(range(100))
    assert counts.counts[7] == 2 and counts.counts.sum() == 101
