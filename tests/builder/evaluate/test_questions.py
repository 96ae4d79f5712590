"""Question files, tasks, our own prompts."""

import json
from pathlib import Path

import pytest
from draftsmith.builder.errors import UsageError
from draftsmith.builder.evaluate.own_sets import read_languages, write_long_questions
from draftsmith.builder.evaluate.questions import (
    Question,
    choose_evenly,
    choose_questions,
    parse_questions,
    read_prompts,
    read_questions,
)
from draftsmith.builder.evaluate.tasks import order_tasks, task_of, tasks_of_mean


def make(name: str, category: str = "qa") -> Question:
    return Question(question_id=name, category=category, turns=("?",))


def test_the_eight_categories_of_mt_bench_are_one_task() -> None:
    names = ["writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"]
    assert {task_of(name) for name in names} == {"multi-turn chat"}
    assert [task_of(name) for name in ("math_reasoning", "rag", "poems")] == ["math_reasoning", "rag", "poems"]


def test_tasks_have_spec_benchs_order_and_ours_are_last() -> None:
    given = ["arabic", "poems", "rag", "qa", "rag", "multi-turn chat"]
    assert order_tasks(given) == ["multi-turn chat", "qa", "rag", "poems", "arabic"]


def test_the_mean_is_over_spec_benchs_tasks_where_there_are_any() -> None:
    assert tasks_of_mean(["arabic", "rag", "poems", "qa"]) == ["qa", "rag"]
    assert tasks_of_mean(["arabic", "poems"]) == ["poems"]
    assert tasks_of_mean(["arabic", "chinese"]) == ["chinese", "arabic"]


def test_a_spec_bench_line_is_a_question() -> None:
    line = json.dumps({"question_id": 81, "category": "writing", "turns": ["a", "b"], "reference": []})
    (question,) = parse_questions(f"\n{line}\n\n", "file")
    assert question == Question(question_id="81", category="writing", turns=("a", "b"))
    assert question.task == "multi-turn chat"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "expected a JSON object a line"),
        ("[]", "expected a JSON object, found list"),
        ('{"category": "qa", "turns": ["a"]}', "question_id: expected a number or a name, found None"),
        ('{"question_id": true, "category": "qa", "turns": ["a"]}', "found True"),
        ('{"question_id": 1, "turns": ["a"]}', "category: expected a name"),
        ('{"question_id": 1, "category": "qa", "turns": []}', "turns: expected a list of texts"),
        ('{"question_id": 1, "category": "qa", "turns": [3]}', "turns: expected a list of texts"),
    ],
)
def test_a_bad_line_is_named(line: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_questions(f"\n{line}", "file")
    assert words in str(caught.value)
    assert "(file:2)" in str(caught.value)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_questions(tmp_path / "none")
    with pytest.raises(UsageError, match="is a directory"):
        read_prompts(tmp_path)
    (tmp_path / "x.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="UTF-8"):
        read_prompts(tmp_path / "x.txt")
    (tmp_path / "x.txt").write_text(" \n")
    for read in (read_prompts, read_questions):
        with pytest.raises(UsageError, match="an empty file"):
            read(tmp_path / "x.txt")


def test_prompts_are_lines_and_the_file_is_their_task(tmp_path: Path) -> None:
    (tmp_path / "poems.txt").write_text("One\n\n Two \n")
    assert read_prompts(tmp_path / "poems.txt") == [
        Question(question_id="poems-1", category="poems", turns=("One",)),
        Question(question_id="poems-2", category="poems", turns=("Two",)),
    ]


def test_chosen_questions_are_the_middles_of_equal_parts() -> None:
    questions = [make(str(index)) for index in range(10)]
    assert [q.question_id for q in choose_evenly(questions, 2)] == ["2", "7"]
    assert [q.question_id for q in choose_evenly(questions, 3)] == ["1", "5", "8"]
    assert choose_evenly(questions, None) == choose_evenly(questions, 10) == choose_evenly(questions, 99) == questions


def test_questions_are_chosen_a_task_and_ids_differ() -> None:
    questions = [make("1", "rag"), make("2", "writing"), make("3", "coding"), make("4", "rag")]
    assert [q.question_id for q in choose_questions(questions, 1)] == ["3", "4"]
    with pytest.raises(UsageError, match="'1' twice"):
        choose_questions([make("1"), make("1")], None)


def test_ten_questions_come_in_chinese_and_ten_in_arabic() -> None:
    questions = read_languages()
    assert [q.category for q in questions] == ["chinese"] * 10 + ["arabic"] * 10
    assert all("一" <= max(turn) <= "\uffee" for q in questions[:10] for turn in q.turns)
    assert all(any("\u0600" <= c <= "\u06ff" for c in turn) for q in questions[10:] for turn in q.turns)
    assert {len(q.turns) for q in questions} == {1, 2}


def test_long_prompts_have_the_wanted_length_and_hardly_repeat() -> None:
    questions = write_long_questions(lambda text: len(text.split()), 3000)
    assert len({q.turns[0] for q in questions}) == len(questions) == 6
    for question in questions:
        (text,) = question.turns
        assert 3000 <= len(text.split()) < 3500
        passages = [text[start : start + 300] for start in range(0, len(text) - 300, 50)]
        assert sum(text.count(passage) > 1 for passage in passages) < 0.1 * len(passages)
    again = write_long_questions(lambda text: len(text.split()), 3000)
    assert again == questions
