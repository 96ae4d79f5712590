"""``auto`` against either drafter alone: real look-up, trees and policy over scripted texts, with counted time."""

import numpy as np
import pytest
from draftsmith.model_repo.runtime.model_value import DraftCost, Gain, GainCounts, ModelGain

from tests.model_repo.scripted import Machine, Text, measure_speed, open_scripted


def fresh_text(number, chance, *, prompt_len=60, length=150):
    """Nothing in it is worth looking up: no token comes twice."""
    rng = np.random.default_rng(number)
    ids = rng.permutation(np.arange(30, 299))[: prompt_len + length].tolist()
    return Text([number, *ids[:prompt_len]], ids[prompt_len:], chance)


def copying_text(number, chance, *, length=150):
    """Quotes its prompt, a dozen tokens at a time."""
    rng = np.random.default_rng(number)
    prompt = rng.integers(30, 299, 120).tolist()
    answer = []
    while len(answer) < length:
        start = int(rng.integers(0, 100))
        answer += [*prompt[start : start + 12], int(rng.integers(30, 299))]
    return Text([number, *prompt], answer[:length], chance)


def make_texts(kind, chance):
    """Six requests of one kind, or of both in turn."""
    makers = {"fresh": [fresh_text], "copying": [copying_text], "mixed": [fresh_text, copying_text]}[kind]
    return [makers[number % len(makers)](number, chance) for number in range(6)]


def compare(texts, **options):
    """Speeds against plain decoding, of an engine that has written the texts once."""

    def measure(**asked):
        engine, _, _ = open_scripted(texts, num_slots=len(texts) if options.get("together") else 1)
        first = measure_speed(texts, engine=engine, **asked, **options)
        return np.array([first, measure_speed(texts, engine=engine, **asked, **options)])

    plain = measure(speculate=False)
    return {method: measure(draft_method=method) / plain for method in ("ngram", "model", "auto")}


def find_best_alone(speed):
    return np.maximum(1.0, np.maximum(speed["ngram"], speed["model"]))


@pytest.mark.parametrize(
    ("kind", "chance"),
    [("fresh", 0.1), ("fresh", 0.65), ("copying", 0.1), ("copying", 0.65), ("mixed", 0.1), ("mixed", 0.65)],
)
def test_auto_is_as_fast_as_the_better_drafter(kind, chance):
    speed = compare(make_texts(kind, chance))
    fresh_engine, used_engine = speed["auto"] / find_best_alone(speed)
    assert fresh_engine >= 0.92
    assert used_engine >= 0.97


def test_auto_beats_both_where_requests_differ():
    speed = compare(make_texts("mixed", 0.4))
    assert min(speed["auto"] / find_best_alone(speed)) >= 1.1


def test_a_slow_draft_model_is_left_off():
    texts = make_texts("mixed", 0.5)

    def speed(method):
        return measure_speed(texts, draft_method=method, machine=Machine(draft_first=6.0, draft_next=6.0))

    assert speed("model") < 0.8 * speed("ngram")
    assert speed("auto") >= 0.95 * speed("ngram")


@pytest.mark.parametrize("chance", [0.2, 0.65])
def test_rows_that_are_decoded_together_lose_little(chance):
    speed = compare(make_texts("mixed", chance), together=True)
    assert min(speed["auto"] / find_best_alone(speed)) >= 0.85


def test_what_one_request_taught_does_not_bind_the_next():
    """A fresh text after copying ones: the model runs again at once."""
    texts = [*(copying_text(number, 0.7) for number in range(4)), fresh_text(4, 0.7)]
    engine, _, draft = open_scripted(texts)
    measure_speed(texts[:4], engine=engine)
    before, steps = draft.num_first, engine.stats().num_steps
    measure_speed(texts[4:], engine=engine)
    assert draft.num_first - before >= 0.85 * (engine.stats().num_steps - steps)


def test_gains_are_pulled_to_the_class_then_to_all_and_belong_to_the_request():
    gain, good, bad = ModelGain(), GainCounts(), GainCounts()
    assert gain.expect(GainCounts(), 0).tokens == 0.5
    for _ in range(60):
        gain.add(good, 0, Gain(tokens=2.0, nodes=4.0))
        gain.add(bad, 3, Gain(tokens=0.0, nodes=0.0))
    assert gain.expect(GainCounts(), 0).tokens > 1.8
    assert gain.expect(GainCounts(), 3).tokens < 0.2
    assert gain.expect(GainCounts(), 1).tokens == pytest.approx(1.0, abs=0.1)
    for _ in range(60):
        gain.add(bad, 0, Gain(tokens=0.0, nodes=0.0))
    assert gain.expect(bad, 0).tokens < 0.5 * gain.expect(good, 0).tokens


def test_reading_is_charged_apart_from_usual_steps():
    cost = DraftCost()
    assert cost.usual(1) == 0.0
    cost.observe([500], 60.0)  # the very first: all of it is taken for reading
    for ms in (9.0, 2.0, 2.0):  # the first usual one sets things up
        cost.observe([3], ms)
    assert cost.usual(1) == pytest.approx(2.0)
    assert cost.usual(3) == pytest.approx(4.0)
    assert cost.catch_up(103) == pytest.approx(12.0)
    assert cost.catch_up(3) == 0.0
    cost.observe([13], 3.2)  # 1.2 of it is reading, and 2.0 a usual step
    assert cost.usual(1) == pytest.approx(2.0)
    cost.observe([200, 3], 15.0)
    assert cost.catch_up(103) == pytest.approx(9.0)
