"""Candidates are ranked as the target draws: by logit at temperature plus the noise of position and token."""

import numpy as np
from draftsmith.model_repo.runtime.candidates import draw_noise, find_candidate_chances, rank_candidates
from draftsmith.model_repo.runtime.noise import gumbel, position_key, token_bits
from draftsmith.model_repo.runtime.sessions.base import DraftInputs, DraftOutputs


def make_inputs(keys, inverse_temperature):
    keys = np.array(keys, np.uint64).view(np.int64)
    return DraftInputs(
        **dict.fromkeys(("slots", "token_ids", "positions", "past_lengths", "query_lengths", "tree_mask")),
        logits_index=None,
        features=None,
        hidden=None,
        noise_keys=keys,
        inverse_temperature=np.array(inverse_temperature, np.float32),
    )


def test_greedy_candidates_are_the_largest_logits_with_their_probability():
    logits = np.array([[[0.0, 3.0, 1.0, 2.0]]], np.float32)
    inputs = make_inputs([[0]], [[1.0]])
    ids, best, total = rank_candidates(logits, None, inputs, 3)
    assert ids.tolist() == [[[1, 3, 2]]]
    outputs = DraftOutputs(token_ids=ids, logits=best, log_sum_exp=total, hidden=None)
    weights = np.exp([3.0, 2.0, 1.0]) / np.exp([0.0, 1.0, 2.0, 3.0]).sum()
    assert np.allclose(find_candidate_chances(inputs, outputs), weights)


def test_ids_of_a_reduced_vocabulary_are_the_targets():
    logits = np.array([[[5.0, 1.0, 9.0]]], np.float32)
    ids, _, _ = rank_candidates(logits, np.array([[[70, 10, 30]]], np.int32), make_inputs([[0]], [[1.0]]), 2)
    assert ids.tolist() == [[[30, 70]]]


def test_sampled_candidates_share_the_targets_noise():
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(1, 2, 500)).astype(np.float32)
    keys = [position_key(7, 40), position_key(7, 41)]
    inputs = make_inputs([keys], [[1 / 0.7, 1 / 0.7]])
    ids, best, total = rank_candidates(logits, None, inputs, 4)
    for row, key in enumerate(keys):
        scores = logits[0, row] / 0.7 + gumbel(token_bits(key, np.arange(500)))
        assert ids[0, row].tolist() == np.argsort(-scores)[:4].tolist()
    outputs = DraftOutputs(token_ids=ids, logits=best, log_sum_exp=total, hidden=None)
    chances = find_candidate_chances(inputs, outputs)
    assert np.allclose(chances.sum(axis=-1), 1.0) and (np.diff(chances) < 0).all()
    assert np.allclose(draw_noise(inputs.noise_keys, ids)[0, 1], gumbel(token_bits(keys[1], ids[0, 1])))


def test_where_there_is_no_candidate_there_is_no_chance():
    inputs = make_inputs([[0]], [[1.0]])
    outputs = DraftOutputs(
        token_ids=np.array([[[4, -1]]], np.int32),
        logits=np.array([[[2.0, -np.inf]]], np.float32),
        log_sum_exp=np.array([[2.0]], np.float32),
        hidden=None,
    )
    assert find_candidate_chances(inputs, outputs).tolist() == [[[1.0, 0.0]]]
    broken = DraftOutputs(
        token_ids=np.full((1, 1, 2), -1, np.int32),
        logits=np.full((1, 1, 2), np.nan, np.float32),
        log_sum_exp=np.full((1, 1), np.nan, np.float32),
        hidden=None,
    )
    assert find_candidate_chances(inputs, broken).tolist() == [[[0.0, 0.0]]]
