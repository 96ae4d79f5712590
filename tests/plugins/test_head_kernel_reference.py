"""The definition of SpecVocabHead's kernels, by cases worked by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from draftsmith.plugins.reference.spec_vocab_head import (
    HeadOptions,
    HeadWeights,
    best_outputs,
    choose,
    quantize_projected,
    ranking_scores,
    round_to,
    spec_vocab_head,
)

OPTIONS = HeadOptions(hidden_type="float16", ranking_type="float16", num_candidates=2, num_outputs=2)
# d = 2, r = 1: h' is the first component; tokens 0 to 4 score -1, 3, 1, 3, 2 times it.
WEIGHTS = HeadWeights(
    w_down=np.array([[1.0, 0.0]]),
    w_vocab=np.array([[-1.0], [3.0], [1.0], [3.0], [2.0]]),
    w_head=np.array([[0.0, 9.0], [1.0, 0.0], [0.0, 1.0], [2.0, 1.0], [0.0, 4.0]]),
)


def test_the_best_scores_give_candidates_and_exact_logits_order_them():
    outputs = spec_vocab_head(np.array([[1.0, 1.0]]), WEIGHTS, OPTIONS)

    # Scores 3 (token 1) and 3 (token 3) win; token 0, whose logit would be 9, is no candidate.
    assert outputs.chosen_ids[0].tolist() == [1, 3]
    assert outputs.candidate_ids.tolist() == [[3, 1]]
    assert outputs.candidate_logits.tolist() == [[3.0, 1.0]]
    assert outputs.log_sum_exp[0] == pytest.approx(3.0 + math.log1p(math.exp(-2.0)))


def test_log_sum_exp_counts_candidates_that_are_not_put_out():
    outputs = spec_vocab_head(np.array([[1.0, 1.0]]), WEIGHTS, replace(OPTIONS, num_candidates=5, num_outputs=1))

    assert outputs.candidate_ids.tolist() == [[0]]
    assert outputs.log_sum_exp[0] == pytest.approx(math.log(sum(math.exp(x) for x in (9, 1, 1, 3, 4))))


def test_equal_scores_and_equal_logits_go_to_the_lowest_id():
    hidden = np.array([[0.0, 0.0]])

    outputs = spec_vocab_head(hidden, WEIGHTS, replace(OPTIONS, num_candidates=3, num_outputs=3))

    assert outputs.chosen_ids[0].tolist() == [0, 1, 2]
    assert outputs.candidate_ids.tolist() == [[0, 1, 2]]


def test_scores_are_compared_after_rounding_to_16_bits():
    # 2049 rounds to 2048 in fp16: a tie, so the lowest id wins though its score is smaller.
    scores = ranking_scores(
        np.array([[1.0, 0.0]]), replace(WEIGHTS, w_vocab=np.array([[2048.0], [2049.0], [1.0]])), OPTIONS
    )[0]

    assert scores[0].tolist() == [2048.0, 2048.0, 1.0]
    assert choose(scores[0], replace(OPTIONS, num_candidates=1), 3).tolist() == [0]


def test_zeros_of_both_signs_tie():
    scores = np.array([-0.0, 0.0, -0.0], np.float16)

    assert choose(scores, OPTIONS, 3).tolist() == [0, 1]


def test_not_a_number_ranks_below_minus_infinity():
    scores = np.array([np.nan, -np.inf, np.nan, -np.inf], np.float16)

    assert choose(scores, OPTIONS, 4).tolist() == [1, 3]
    assert choose(scores, replace(OPTIONS, num_candidates=3), 4).tolist() == [0, 1, 3]


def test_rows_of_a_request_share_their_union_and_no_other_row_does():
    hidden = np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, 1.0]])

    outputs = spec_vocab_head(hidden, WEIGHTS, OPTIONS, np.array([7, 7, 8], np.int32))

    # Row 0 chooses 1 and 3; rows 1 and 2, where the scores are turned round, 0 (1) and 2 (-1).
    assert [ids.tolist() for ids in outputs.chosen_ids] == [[1, 3], [0, 2], [0, 2]]
    assert outputs.candidate_ids.tolist() == [[0, 3], [0, 2], [0, 2]]
    assert outputs.log_sum_exp[0] == pytest.approx(math.log(sum(math.exp(x) for x in (9, 1, 1, 3))))
    assert outputs.log_sum_exp[2] == pytest.approx(math.log(math.exp(9) + math.exp(1)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_broken_row_has_no_outputs_and_gives_its_union_nothing(value):
    hidden = np.array([[1.0, 1.0], [1.0, value]])

    outputs = spec_vocab_head(hidden, WEIGHTS, OPTIONS, np.array([0, 0], np.int32))

    assert outputs.chosen_ids[1].tolist() == []
    assert outputs.candidate_ids.tolist() == [[3, 1], [-1, -1]]
    assert np.isnan(outputs.candidate_logits[1]).all()
    assert np.isnan(outputs.log_sum_exp[1])


def test_a_projection_that_overflows_its_type_breaks_the_row():
    hidden = np.array([[60000.0, 0.0]])
    weights = replace(WEIGHTS, w_down=np.array([[2.0, 0.0]]), w_vocab=WEIGHTS.w_vocab / 1000)

    assert np.isnan(spec_vocab_head(hidden, weights, OPTIONS).log_sum_exp[0])
    integers = replace(OPTIONS, ranking_type="int8")
    assert spec_vocab_head(hidden, weights, integers).candidate_ids.tolist() == [[3, 1]]


def test_groups_are_ranked_and_give_all_their_tokens():
    # Five tokens in groups of two: {0, 1}, {2, 3}, {4}; the last group scores best, then the first.
    weights = replace(WEIGHTS, w_vocab=np.array([[2.0], [1.0], [5.0]]))
    hidden = np.array([[1.0, 1.0]])

    outputs = spec_vocab_head(hidden, weights, replace(OPTIONS, group_size=2, num_candidates=4, num_outputs=4))

    assert outputs.chosen_ids[0].tolist() == [0, 1, 4]
    assert outputs.candidate_ids.tolist() == [[0, 4, 1, -1]]
    assert outputs.candidate_logits.tolist() == [[9.0, 4.0, 1.0, -np.inf]]


def test_scales_multiply_the_scores_of_8_bit_weights():
    weights = replace(WEIGHTS, w_vocab_scales=np.array([1.0, 0.1, 9.0, 0.2, 0.4]))
    options = replace(OPTIONS, ranking_type="float8_e4m3")

    # Scores -1, 0.3, 9, 0.6, 0.8.
    assert spec_vocab_head(np.array([[1.0, 0.0]]), weights, options).chosen_ids[0].tolist() == [2, 4]


def test_a_quantized_projection_has_16_bits_and_a_scale_a_row():
    quantized = quantize_projected(np.array([[1.0, -0.5, 1.2 / 32512, 0.0], [2e-31, 0.0, 0.0, 0.0]]))

    assert quantized[0].tolist() == pytest.approx([1.0, -0.5, 1 / 32512, 0.0], rel=1e-6)
    assert quantized[1].tolist() == [0.0] * 4
    assert np.isnan(quantize_projected(np.array([[1.0, np.inf]]))).all()


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1.0, 1.0), (1.00390625, 1.0), (1.01171875, 1.015625), (3.4e38, np.inf), (-np.inf, -np.inf)],
)
def test_rounding_to_bfloat16_ties_to_even(value, expected):
    assert round_to(np.array([value]), "bfloat16")[0] == expected


def test_rounding_to_bfloat16_keeps_not_a_number():
    assert np.isnan(round_to(np.array([np.nan, -np.nan]), "bfloat16")).all()


@pytest.mark.parametrize(
    ("logits", "expected"),
    [([-np.inf, -np.inf], -np.inf), ([np.inf, 1.0], np.inf), ([np.inf, np.inf], np.inf), ([1000.0, -np.inf], 1000.0)],
)
def test_infinite_logits_make_no_nan(logits, expected):
    assert best_outputs(np.array([3, 5], np.int32), np.array(logits), 2)[2] == expected


def test_a_nan_logit_breaks_the_row():
    ids, logits, total = best_outputs(np.array([3, 5], np.int32), np.array([1.0, np.nan]), 1)

    assert ids.tolist() == [-1]
    assert np.isnan(logits).all()
    assert np.isnan(total)
