"""Training text: what the script of a checkpoint forces, what lockstep writing gives, which rows are kept."""

from pathlib import Path

import numpy as np
import pytest
import torch
from draftsmith.builder.checkpoint.tokenizer import load_tokenizer
from draftsmith.builder.errors import CheckpointError
from draftsmith.builder.train.generation import ASSISTANT, OPENING, USER, GeneratedText, Script, TextWriter, WritingPlan
from draftsmith.builder.train.openings import LONG, SHORT
from draftsmith.builder.train.text import (
    LOOP_WINDOW,
    Beginnings,
    TrainingText,
    build_script,
    draw_plan,
    find_beginnings,
    select_rows,
)

from tests.builder.train.tiny_target import open_tiny_target

BASE = Script(opening=[1], before_user=[], before_assistant=[], end_ids=[2], has_turns=False)


def test_a_chat_scripts_pieces_join_to_the_rendered_chat(tmp_path: Path) -> None:
    checkpoint, _ = open_tiny_target(tmp_path, "llama")
    script = build_script(checkpoint)
    tokenizer = load_tokenizer(checkpoint.tokenizer.tokenizer_json, "test")

    texts = [
        tokenizer.decode(list(ids), skip_special_tokens=False)
        for ids in (script.opening, script.before_assistant, script.before_user)
    ]

    assert script.has_turns
    assert script.end_ids[0] in checkpoint.generation.end_ids
    assert [text.rstrip("\n").split()[-1][-9:] for text in texts] == ["user", "assistant", "user"] or all(texts)
    assert "assistant" in texts[1]
    assert "user" in texts[0]
    assert "user" in texts[2]


def test_greedy_answers_are_what_the_target_says(tmp_path: Path) -> None:
    checkpoint, target = open_tiny_target(tmp_path, "llama")
    script = build_script(checkpoint)
    writer = TextWriter(target, script, batch=3, length=60, seed=0)
    temperatures, limits = torch.ones(3, 3), torch.full((3, 3), 9)
    temperatures[ASSISTANT] = 0

    text = writer.write(_plan(temperatures, limits))

    best = target.logits(target.run(torch.from_numpy(text.token_ids).long()).hidden).argmax(-1).numpy()
    answers = (text.roles[:, 1:] == ASSISTANT) & (text.token_ids[:, 1:] != script.end_ids[0])
    assert answers.any()
    np.testing.assert_array_equal(text.token_ids[:, 1:][answers], best[:, :-1][answers])


def test_turns_are_forced_and_no_longer_than_their_limit(tmp_path: Path) -> None:
    checkpoint, target = open_tiny_target(tmp_path, "llama")
    script = build_script(checkpoint)
    opening = len(script.opening)

    text = TextWriter(target, script, batch=2, length=60, seed=0).write(_plan(torch.ones(3, 2), torch.full((3, 2), 4)))

    for ids, roles in zip(text.token_ids, text.roles, strict=True):
        assert list(ids[:opening]) == list(script.opening)
        end = opening + int(np.argmax(ids[opening:] == script.end_ids[0]))
        assert end - opening < 4
        answer = end + 1 + len(script.before_assistant)
        assert list(ids[end + 1 : answer]) == list(script.before_assistant)
        assert roles[answer] == ASSISTANT
        assert set(roles[end + 1 : answer]) <= {OPENING}
        assert USER in roles


def test_writing_replays_with_its_seed(tmp_path: Path) -> None:
    checkpoint, target = open_tiny_target(tmp_path, "llama")
    script = build_script(checkpoint)
    beginnings = find_beginnings(checkpoint.tokenizer, "test")
    plan = draw_plan(script, beginnings, 2, 40, np.random.default_rng(5))

    first, second = (TextWriter(target, script, batch=2, length=40, seed=7).write(plan) for _ in range(2))

    np.testing.assert_array_equal(first.token_ids, second.token_ids)


def test_user_turns_begin_with_their_words(tmp_path: Path) -> None:
    checkpoint, target = open_tiny_target(tmp_path, "llama")
    script = build_script(checkpoint)
    words = {"first_words": [[5, 6], [7]], "later_words": [[8], [9, 10, 11]]}

    text = TextWriter(target, script, batch=2, length=90, seed=0).write(
        _plan(torch.ones(3, 2), torch.full((3, 2), 6), **words)
    )

    for row, ids in enumerate(text.token_ids.tolist()):
        first, later = [*script.opening, *words["first_words"][row]], [*script.before_user, *words["later_words"][row]]
        assert ids[: len(first)] == first
        assert text.roles[row, : len(first)].tolist() == [OPENING] * len(first)
        at = next(i for i in range(len(first), 90) if ids[i : i + len(script.before_user)] == list(script.before_user))
        assert ids[at : at + len(later)] == later


@pytest.mark.parametrize(("length", "has_texts"), [(512, False), (1537, True)])
def test_only_long_rows_have_texts_in_their_questions(length: int, has_texts: bool) -> None:
    beginnings = Beginnings(short=[[11]], long=[[12]], words=[[13]])

    plan = draw_plan(BASE, beginnings, 200, length, np.random.default_rng(0))

    kinds = [tuple(words) for words in plan.first_words]
    assert ((12,) in kinds) == has_texts
    assert {(11,), (13,), ()} <= set(kinds)
    long = [limit for limit, kind in zip(plan.limits[OPENING].tolist(), kinds, strict=True) if kind == (12,)]
    assert all(length // 4 <= limit <= length * 3 // 5 for limit in long)
    assert 0.4 < float((plan.temperatures[ASSISTANT] == 0).float().mean()) < 0.6


def test_beginnings_are_the_openings_and_all_words(tmp_path: Path) -> None:
    checkpoint, _ = open_tiny_target(tmp_path, "llama")

    beginnings = find_beginnings(checkpoint.tokenizer, "test")

    tokenizer = load_tokenizer(checkpoint.tokenizer.tokenizer_json, "test")
    assert tokenizer.decode(beginnings.short[0]) == SHORT[0]
    assert len(beginnings.long) == len(LONG)
    assert beginnings.words
    assert all(tokenizer.decode(ids).isalpha() for ids in beginnings.words)


def test_rows_end_with_the_first_end_token_of_a_model_without_chat() -> None:
    ids = np.arange(3, 203, dtype=np.int32)[None, :].repeat(2, 0)
    ids[0, 80] = 2

    kept = select_rows(GeneratedText(ids, np.full(ids.shape, ASSISTANT, np.uint8)), BASE, np.zeros(2, np.float32))

    assert kept.lengths.tolist() == [81, 200]


def test_rows_that_turn_in_a_circle_are_cut() -> None:
    ids = np.arange(3, 403, dtype=np.int32)[None, :].copy()
    ids[0, 150:] = np.tile([5, 6, 7], 84)[:250]

    kept = select_rows(GeneratedText(ids, np.full(ids.shape, ASSISTANT, np.uint8)), BASE, np.zeros(1, np.float32))

    assert 150 < kept.lengths[0] <= 150 + 2 * LOOP_WINDOW


def test_text_is_read_back_as_it_was_saved(tmp_path: Path) -> None:
    text = TrainingText(
        token_ids=np.ones((2, 3), np.int32),
        roles=np.full((2, 3), 2, np.uint8),
        lengths=np.array([3, 2], np.int32),
        temperatures=np.array([0, 0.7], np.float32),
    )

    text.save(tmp_path / "text.npz")
    read = TrainingText.load(tmp_path / "text.npz")

    assert read.num_tokens == 5
    np.testing.assert_array_equal(read.temperatures, text.temperatures)


def test_a_template_that_does_not_render_is_refused(tmp_path: Path) -> None:
    checkpoint, _ = open_tiny_target(tmp_path, "llama")
    broken = type(checkpoint.tokenizer)(
        **{
            **{name: getattr(checkpoint.tokenizer, name) for name in checkpoint.tokenizer.__slots__},
            "chat_template": "{{ raise_exception('no') }}",
        }
    )
    checkpoint.tokenizer = broken

    with pytest.raises(CheckpointError, match="chat template: expected one that renders"):
        build_script(checkpoint)


def _plan(
    temperatures: torch.Tensor,
    limits: torch.Tensor,
    first_words: list[list[int]] | None = None,
    later_words: list[list[int]] | None = None,
) -> WritingPlan:
    nothing: list[list[int]] = [[] for _ in range(temperatures.shape[1])]
    return WritingPlan(
        temperatures=temperatures,
        limits=limits,
        first_words=first_words or nothing,
        later_words=later_words or nothing,
    )
