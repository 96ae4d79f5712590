"""The closed form against the explicit decomposition, random rivals, and singular moments."""

import numpy as np
import pytest
from draftsmith.builder.vocabulary.closed_form import BLOCK_ROWS, fit_ranking, second_moment


def make_case(seed: int, vocab: int = 111, size: int = 16, tokens: int = 300):
    random = np.random.default_rng(seed)
    head = random.normal(size=(vocab, size)).astype(np.float32)
    hidden = random.normal(size=(tokens, size)) @ random.normal(size=(size, size))
    return head, hidden.astype(np.float32)


def mean_square(head, hidden, down, vocabulary, weights=1.0):
    error = hidden.astype(np.float64) @ (head.astype(np.float64) - vocabulary.astype(np.float64) @ down).T
    return float(np.mean(error**2 * weights))


@pytest.mark.parametrize("rank", [1, 5, 16])
def test_the_product_equals_the_explicit_truncated_decomposition(rank):
    head, hidden = make_case(0)
    moment = hidden.T.astype(np.float64) @ hidden / len(hidden)
    values, vectors = np.linalg.eigh(moment)
    root = vectors * np.sqrt(values) @ vectors.T
    left, singular, right = np.linalg.svd(head @ root, full_matrices=False)
    expected = (left[:, :rank] * singular[:rank]) @ right[:rank] @ np.linalg.inv(root)

    down, vocabulary = fit_ranking(head, moment, rank)

    assert down.dtype == vocabulary.dtype == np.float32
    assert down.shape == (rank, 16)
    assert vocabulary.shape == (111, rank)
    np.testing.assert_allclose(vocabulary @ down, expected, atol=2e-4)


def test_full_rank_gives_the_head_back():
    head, hidden = make_case(1)
    down, vocabulary = fit_ranking(head, second_moment(hidden), 16)
    np.testing.assert_allclose(vocabulary @ down, head, atol=1e-3)


def test_a_hand_worked_case():
    """Directions of weight 3^2 * 1 and 1^2 * 16: the second is the better one to keep."""
    head = np.array([[3.0, 0.0], [0.0, 1.0]], np.float32)
    down, vocabulary = fit_ranking(head, np.diag([1.0, 16.0]), 1)
    np.testing.assert_allclose(vocabulary @ down, [[0, 0], [0, 1]], atol=1e-5)


def test_no_small_change_is_better():
    head, hidden = make_case(2)
    down, vocabulary = fit_ranking(head, second_moment(hidden), 4)
    best = mean_square(head, hidden, down, vocabulary)
    random = np.random.default_rng(3)
    for scale in (1e-3, 1e-2, 0.1):
        for _ in range(20):
            other_down = down + scale * random.normal(size=down.shape) * np.abs(down).mean()
            other = vocabulary + scale * random.normal(size=vocabulary.shape) * np.abs(vocabulary).mean()
            assert mean_square(head, hidden, other_down, other) > best


def test_weights_count_a_tokens_error():
    head, hidden = make_case(4)
    weights = np.ones(111)
    weights[:10] = 1000.0
    moment = second_moment(hidden)
    plain = mean_square(head, hidden, *fit_ranking(head, moment, 4), weights)
    weighted = mean_square(head, hidden, *fit_ranking(head, moment, 4, weights=weights), weights)
    assert weighted < 0.8 * plain


def test_a_singular_moment_scores_what_it_saw_and_stays_finite():
    head, hidden = make_case(5)
    hidden[:, 6:] = 0  # rank 6 of 16
    down, vocabulary = fit_ranking(head, second_moment(hidden), 8)
    assert np.isfinite(down).all()
    assert np.isfinite(vocabulary).all()
    np.testing.assert_allclose(hidden @ down.T @ vocabulary.T, hidden @ head.T, atol=2e-2)
    unseen = np.zeros((1, 16), np.float32)
    unseen[0, 9] = 1.0
    assert np.abs(unseen @ down.T @ vocabulary.T).max() <= 2 * np.abs(unseen @ head.T).max()


def test_one_hidden_state_is_enough():
    head, hidden = make_case(6, tokens=1)
    down, vocabulary = fit_ranking(head, second_moment(hidden), 1)
    np.testing.assert_allclose(hidden @ down.T @ vocabulary.T, hidden @ head.T, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("vocab", [1, BLOCK_ROWS - 1, BLOCK_ROWS + 1])
def test_blocks_of_rows_do_not_show(vocab):
    head, hidden = make_case(7, vocab=vocab, size=4)
    down, vocabulary = fit_ranking(head.astype(np.float16), second_moment(hidden), 4)
    np.testing.assert_allclose(vocabulary @ down, head.astype(np.float16).astype(np.float32), atol=1e-3)


def test_torch_tensors_are_taken():
    torch = pytest.importorskip("torch")
    head, hidden = make_case(8)
    plain = fit_ranking(head, second_moment(hidden), 3)
    same = fit_ranking(torch.from_numpy(head), torch.from_numpy(second_moment(hidden)), 3)
    np.testing.assert_array_equal(plain[1], same[1])


@pytest.mark.parametrize(
    ("head", "moment", "rank", "message"),
    [
        (np.ones((5, 3)), np.eye(4), 2, r"head: expected \[V, 4\], found \[5, 3\]"),
        (np.ones((5, 3)), np.eye(3), 4, "rank: expected 1 to 3, found 4"),
        (np.ones((5, 3)), np.eye(3), 0, "rank: expected 1 to 3, found 0"),
        (np.ones((5, 3)), np.ones((3, 2)), 1, "moment: expected a square matrix"),
        (np.ones((5, 3)), np.zeros((3, 3)), 1, "moment: expected eigenvalues from 0 on"),
        (np.ones((5, 3)), np.diag([1.0, 1.0, -1.0]), 1, "moment: expected eigenvalues from 0 on"),
        (np.ones((5, 3)), np.full((3, 3), np.nan), 1, "moment: expected finite"),
        (np.full((5, 3), np.nan), np.eye(3), 1, "head: expected finite"),
    ],
)
def test_what_does_not_fit_is_refused(head, moment, rank, message):
    with pytest.raises(ValueError, match=message):
        fit_ranking(head, moment, rank)
