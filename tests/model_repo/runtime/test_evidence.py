"""How often guesses of a class are expected to be right in a request, worked by hand."""

import pytest
from draftsmith.model_repo.runtime.evidence import GREEDY, NUM_CLASSES, AcceptanceCounts

USUAL = [0.5] * NUM_CLASSES


def observe(history, evidence, judged, accepted):
    history.compare(evidence, judged, accepted, USUAL[evidence])
    history.add(evidence, judged, accepted)


def test_a_new_request_is_like_all_others():
    assert AcceptanceCounts().rates(USUAL) == USUAL


def test_one_class_accepted_less_than_usual_lowers_the_other_classes_of_its_drafter_alone():
    history = AcceptanceCounts()
    observe(history, GREEDY + 2, judged=12, accepted=0)
    rates = history.rates(USUAL)
    adjusted = 0.5 * 3 / (6 + 3)  # 6 were expected, and 3 stand for all others
    assert rates[GREEDY + 5] == pytest.approx(adjusted)
    assert rates[GREEDY + 2] == pytest.approx((0 + 4 * adjusted) / (12 + 4))
    assert rates[:GREEDY] == USUAL[:GREEDY]


def test_more_than_usual_raises_the_odds_and_never_beyond_certainty():
    history = AcceptanceCounts()
    observe(history, 1, judged=12, accepted=12)
    rates = history.rates(USUAL)
    ratio = (12 + 3) / (6 + 3)
    assert rates[3] == pytest.approx(ratio * 0.5 / (0.5 + ratio * 0.5))
    assert rates[GREEDY:] == USUAL[GREEDY:]
    for _ in range(200):
        observe(history, 1, judged=12, accepted=12)
    assert max(history.rates([0.98] * NUM_CLASSES)) < 1.0


def test_old_blocks_fade():
    history = AcceptanceCounts()
    observe(history, GREEDY, judged=12, accepted=0)
    for _ in range(400):
        observe(history, GREEDY, judged=2, accepted=1)
    assert history.rates(USUAL)[GREEDY + 5] == pytest.approx(0.5, abs=1e-3)
