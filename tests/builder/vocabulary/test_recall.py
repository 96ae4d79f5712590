"""Candidates, recall and mass on hand-worked cases; subsets, prior and groups."""

import numpy as np
import pytest
from draftsmith.builder.errors import UsageError
from draftsmith.builder.spec.ranking import Ranking
from draftsmith.builder.vocabulary import recall as recall_module
from draftsmith.builder.vocabulary.candidates import RankedTokens, StaticTokens, best_first
from draftsmith.builder.vocabulary.choose import choose_subset, corpus_frequencies, order_tokens, target_frequencies
from draftsmith.builder.vocabulary.closed_form import fit_ranking, second_moment
from draftsmith.builder.vocabulary.grouping import fit_group_ranking, group_tokens
from draftsmith.builder.vocabulary.hidden_states import HeadStates
from draftsmith.builder.vocabulary.passages import Passage
from draftsmith.builder.vocabulary.recall import measure_recall


def make_states(hidden, task_index=None):
    count = len(hidden)
    index = np.zeros(count, np.int64) if task_index is None else np.asarray(task_index)
    tasks = tuple(f"task {i}" for i in range(int(index.max()) + 1))
    return HeadStates(
        hidden=np.asarray(hidden, np.float32), tasks=tasks, task_index=index, parent_index=np.arange(count) - 1
    )


def test_best_first_is_ordered_and_ties_go_to_the_lowest_id():
    scores = np.array([[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0]], np.float32)
    np.testing.assert_array_equal(best_first(scores, 4), [[1, 2, 3, 0], [0, 1, 2, 3]])
    np.testing.assert_array_equal(best_first(scores[:1], 3), [[1, 2, 3]])


def test_recall_and_mass_of_a_static_subset_by_hand():
    """Logits log(5, 3, 2) and log(2, 7, 1): shares 0.5, 0.3, 0.2 and 0.2, 0.7, 0.1."""
    head = np.eye(3, dtype=np.float32)
    states = make_states(np.log([[5.0, 3.0, 2.0], [2.0, 7.0, 1.0]]), [0, 1])
    found = measure_recall(states, head, {"a": StaticTokens([0, 2, 1])}, [1, 2, 3])["a"]
    by_key = {(r.task, r.num_candidates): (r.recall, round(r.mass, 6), r.num_positions) for r in found}
    assert by_key["task 0", 1] == (1.0, 0.5, 1)
    assert by_key["task 1", 2] == (0.0, 0.3, 1)
    assert by_key["all", 1] == (0.5, 0.35, 2)
    assert by_key["all", 3] == (1.0, 1.0, 2)


def test_the_whole_head_as_ranking_holds_everything(monkeypatch):
    random = np.random.default_rng(0)
    head, hidden = random.normal(size=(99, 8)).astype(np.float32), random.normal(size=(50, 8))
    monkeypatch.setattr(recall_module, "BLOCK_BYTES", 99 * 4 * 7)  # blocks of seven positions
    ranking = Ranking(down=np.eye(8, dtype=np.float32), vocabulary=head, num_candidates=1)
    one, whole = measure_recall(make_states(hidden), head, {"": RankedTokens(ranking)}, [1, 200])[""]
    assert one.recall == 1.0
    assert whole.num_candidates == 99
    assert whole.mass == pytest.approx(1.0, abs=1e-5)


def test_a_prior_moves_the_order():
    ranking = Ranking(
        down=np.eye(2, dtype=np.float32),
        vocabulary=np.array([[1, 0], [0, 1], [0, 0]], np.float32),
        num_candidates=2,
        prior=np.array([0, 0, 5], np.float32),
    )
    np.testing.assert_array_equal(RankedTokens(ranking).propose(np.array([[2.0, 1.0]], np.float32), 2), [[2, 0]])


def test_groups_give_their_members_and_count_as_whole():
    ranking = Ranking(
        down=np.eye(2, dtype=np.float32),
        vocabulary=np.array([[0, 1], [1, 0]], np.float32),
        num_candidates=2,
        groups=np.array([[3, 1], [0, -1]], np.int32),
    )
    proposer = RankedTokens(ranking)
    np.testing.assert_array_equal(proposer.propose(np.array([[2.0, 1.0]], np.float32), 2), [[0, -1]])
    np.testing.assert_array_equal(proposer.propose(np.array([[2.0, 1.0]], np.float32), 3), [[0, -1, 3, 1]])


@pytest.mark.parametrize("vocab", [16, 99, 128])
def test_groups_hold_every_token_once_and_are_the_same_again(vocab):
    vectors = np.random.default_rng(1).normal(size=(vocab, 5)).astype(np.float32)
    groups = group_tokens(vectors)
    assert groups.shape == (-(-vocab // 16), 16)
    assert sorted(groups[groups >= 0]) == list(range(vocab))
    np.testing.assert_array_equal(groups, group_tokens(vectors))


def test_tokens_that_are_alike_share_a_group():
    centres = 10 * np.eye(4, dtype=np.float32)
    owner = np.random.default_rng(2).permutation(np.repeat(np.arange(4), 16))
    vectors = centres[owner] + 0.01 * np.random.default_rng(3).normal(size=(64, 4)).astype(np.float32)
    groups = group_tokens(vectors)
    assert all(len(set(owner[members])) == 1 for members in groups)


def test_group_scores_follow_the_log_sum_exp_of_members():
    """Where that is linear in h (one member far above the rest), full rank reproduces it."""
    random = np.random.default_rng(4)
    hidden = random.normal(size=(500, 6)).astype(np.float32)
    head = random.normal(size=(8, 6)).astype(np.float32)
    head = np.concatenate([head, np.zeros((8, 6), np.float32)])
    groups = np.array([[i, -1] for i in range(8)] + [[8, 9], [10, 11], [12, 13], [14, 15]], np.int32)
    ranking = fit_group_ranking(head, hidden, groups, rank=6, num_candidates=4)
    assert ranking.prior is not None
    scores = hidden @ ranking.down.T @ ranking.vocabulary.T + ranking.prior
    np.testing.assert_allclose(scores[:, :8], hidden @ head[:8].T, atol=0.2)
    np.testing.assert_allclose(scores[:, 8:], np.log(2), atol=1e-3)


def test_the_closed_form_beats_the_plain_decomposition_and_the_static_list():
    random = np.random.default_rng(5)
    mix = random.normal(size=(32, 32)) * np.geomspace(1, 0.01, 32)
    hidden = (random.normal(size=(600, 32)) @ mix.T).astype(np.float32)
    head = random.normal(size=(500, 32)).astype(np.float32)
    fitted, held_out = make_states(hidden[:400]), make_states(hidden[400:])
    proposers = {}
    for name, moment in (("closed", second_moment(fitted.hidden)), ("plain", np.eye(32))):
        down, vocabulary = fit_ranking(head, moment, 4)
        proposers[name] = RankedTokens(Ranking(down=down, vocabulary=vocabulary, num_candidates=50))
    proposers["static"] = StaticTokens(order_tokens(target_frequencies(fitted, head), ()))
    found = {name: r[0].recall for name, r in measure_recall(held_out, head, proposers, [50]).items()}
    assert found["closed"] > max(found["plain"], found["static"])


def test_corpus_subset_counts_the_text_and_then_takes_low_ids():
    passages = [Passage("a", np.array([5, 5, 5, 7])), Passage("a", np.array([7, 7, 7]))]
    frequencies = corpus_frequencies(passages, 10)
    np.testing.assert_array_equal(order_tokens(frequencies, ())[:4], [7, 5, 0, 1])
    np.testing.assert_array_equal(choose_subset(frequencies, 3, {9}), [5, 7, 9])


def test_target_subset_counts_what_the_target_prefers():
    head = np.eye(4, dtype=np.float32)
    states = make_states([[0, 3, 2, 0], [0, 3, 2, 0], [5, 0, 0, 0]])
    np.testing.assert_array_equal(order_tokens(target_frequencies(states, head), ()), [1, 0, 2, 3])


@pytest.mark.parametrize("size", [1, 11])
def test_a_subset_of_impossible_size_is_refused(size):
    with pytest.raises(UsageError, match=f"--size: expected 2 to 10 tokens, found {size}"):
        choose_subset(np.ones(10), size, {1, 2})
