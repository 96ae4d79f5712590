"""A question under every configuration, without an engine."""

from typing import Any

import pytest
from draftsmith.builder.evaluate.conversation import Conversation, Prompt
from draftsmith.builder.evaluate.lineup import Entry
from draftsmith.builder.evaluate.questions import Question
from draftsmith.builder.evaluate.rounds import Pacer, Round, add_counts, find_difference, run_round
from draftsmith.builder.evaluate.runs import Answer, Sampling, count_accepted, join_updates
from draftsmith.model_repo.contract.errors import RequestError

from tests.builder.evaluate.results_cases import make_entry
from tests.model_repo.toy_engine import make_update

GREEDY = Sampling(max_tokens=8, temperature=0.0, seed=3)


def make_answer(tokens: tuple[int, ...] = (1, 2, 3), text: str = "yes", **more: Any) -> Answer:
    values: dict[str, Any] = {
        "num_prompt_tokens": 4,
        "seconds": 1.0,
        "decode_seconds": 0.5,
        "num_decoded": len(tokens) - 1,
        "num_steps": 1,
        "num_drafted": 2,
        "num_accepted": 1,
        "draft_ms": 10.0,
        "verify_ms": 20.0,
        "other_ms": 5.0,
        "accepted_counts": (0, 1),
    }
    return Answer(token_ids=tokens, text=text, **{**values, **more})


def make_round(*turns: str, turn: int = 0) -> Round:
    return Round(question=Question(question_id="7", category="writing", turns=turns), sampling=GREEDY, turn=turn)


def test_chat_turns_become_messages_and_plain_models_get_text() -> None:
    chat, plain = Conversation(is_chat=True), Conversation(is_chat=False)
    assert plain.ask("a") == Prompt(text="a")
    for talk in (chat, plain):
        talk.answer("a", "b")
    assert plain.ask("c") == Prompt(text="a\n\nb\n\nc")
    said = [("user", "a"), ("assistant", "b"), ("user", "c")]
    assert chat.ask("c") == Prompt(messages=tuple({"role": role, "content": text} for role, text in said))


def test_every_turn_goes_to_every_configuration_before_the_next() -> None:
    entries = [make_entry("plain"), make_entry("a"), make_entry("b")]
    asked: list[tuple[str, str]] = []

    def ask(entry: Entry, prompt: Prompt, sampling: Sampling) -> Answer:
        assert sampling is GREEDY
        assert prompt.messages is not None
        asked.append((entry.name, " ".join(message["content"] for message in prompt.messages)))
        return make_answer(text=f"<{entry.name}>")

    rows = run_round(make_round("one", "two", turn=4), entries, ask)
    assert asked == [
        *((name, "one") for name in ("a", "b", "plain")),
        *((name, "one <plain> two") for name in ("a", "b", "plain")),
    ]
    assert [row.configuration for row in rows] == ["plain", "a", "b"]
    row = rows[1]
    assert (row.task, row.category, row.num_turns, row.seed) == ("multi-turn chat", "writing", 2, 3)
    assert (row.num_tokens, row.num_decoded, row.num_steps, row.num_drafted, row.num_accepted) == (6, 4, 2, 4, 2)
    assert (row.seconds, row.decode_seconds, row.draft_ms, row.verify_ms, row.other_ms) == (2.0, 1.0, 20.0, 40.0, 10.0)
    assert row.accepted_counts == (0, 2)
    assert row.matches


def test_an_answer_that_differs_from_its_baseline_is_noticed() -> None:
    answers = {"plain": (1, 2, 3), "a": (1, 2, 4), "b": (1, 2)}
    entries = [make_entry(name) for name in answers]
    rows = run_round(make_round("one"), entries, lambda entry, _prompt, _sampling: make_answer(answers[entry.name]))
    assert [row.first_difference for row in rows] == [-1, 2, 2]
    assert [row.matches for row in rows] == [True, False, False]


@pytest.mark.parametrize(
    ("answers", "plain", "position"),
    [
        ([[1, 2], [3]], [[1, 2], [3]], -1),
        ([[1, 2], [4]], [[1, 2], [3]], 2),
        ([[1, 2], [3, 4]], [[1, 2], [3]], 3),
        ([[]], [[1]], 0),
        ([[]], [[]], -1),
    ],
)
def test_differences_are_counted_over_all_turns(
    answers: list[list[int]], plain: list[list[int]], position: int
) -> None:
    assert find_difference(answers, plain) == position


def test_histograms_of_different_lengths_add_up() -> None:
    assert add_counts([(1, 2), (), (3, 0, 4)]) == (4, 2, 4)
    assert add_counts([]) == ()


def test_the_machine_rests_between_two_engines_only() -> None:
    pauses: list[float] = []
    pacer = Pacer(lambda *_: make_answer(), pauses.append)
    for entry in (make_entry("a"), make_entry("b"), make_entry("c", "k=7"), make_entry("c", "k=7"), make_entry("a")):
        pacer(entry, Prompt(text="x"), GREEDY)
    assert len(pauses) == 2


def update(steps: int, drafted: int, accepted: int, tokens: tuple[int, ...] = (), **more: Any) -> Any:
    return make_update(
        "x",
        tokens,
        num_target_steps=steps,
        num_draft_tokens=drafted,
        num_accepted_draft_tokens=accepted,
        num_input_tokens=9,
        **more,
    )


def test_updates_become_an_answer_with_its_times_and_steps() -> None:
    updates = [
        (10.5, update(0, 0, 0, (1,))),
        (10.6, update(1, 4, 3, (2, 3, 4, 5))),
        (10.7, update(2, 8, 3, (6,))),
        (11.0, update(3, 8, 3, (7,), is_final=True)),
    ]
    answer = join_updates(updates, 10.0, {"prefill": 400.0, "draft": 100.0, "verify": 300.0, "accept": 9.0})
    assert answer.token_ids == (1, 2, 3, 4, 5, 6, 7)
    assert answer.text == "xxxx"
    assert (answer.seconds, answer.decode_seconds) == (pytest.approx(1.0), pytest.approx(0.5))
    assert (answer.num_decoded, answer.num_steps, answer.num_drafted, answer.num_accepted) == (6, 3, 8, 3)
    assert (answer.draft_ms, answer.verify_ms, answer.other_ms) == (100.0, 300.0, pytest.approx(100.0))
    assert answer.accepted_counts == (2, 0, 0, 1)
    assert answer.num_prompt_tokens == 9


def test_a_failed_request_raises_what_it_failed_with() -> None:
    error = RequestError("logits", found="NaN")
    with pytest.raises(RequestError, match="NaN"):
        join_updates([(1.0, make_update(is_final=True, error=error))], 0.0, {})


def test_steps_that_share_an_update_share_its_tokens() -> None:
    assert count_accepted([update(0, 0, 0), update(3, 9, 4)]) == (0, 2, 1)
    assert count_accepted([update(0, 0, 0)]) == ()
    assert count_accepted([update(2, 0, 0)]) == (2,)
