"""A whole evaluation of tiny engines: files, equality, resuming, interruption."""

import json
from pathlib import Path
from typing import Any

import pytest
from draftsmith.builder.cli.evaluate import evaluate_configurations
from draftsmith.builder.errors import UsageError
from draftsmith.builder.evaluate import evaluation
from draftsmith.builder.evaluate.configuration import parse_configurations
from draftsmith.builder.evaluate.engine_facts import read_facts
from draftsmith.builder.evaluate.evaluation import MismatchError, check_results, evaluate, gather_questions
from draftsmith.builder.evaluate.plan import EvaluationPlan
from draftsmith.builder.evaluate.rows import read_rows
from draftsmith.builder.evaluate.runs import OpenEngine
from draftsmith.builder.evaluate.tasks import LONG_CONTEXT
from draftsmith.builder.pipeline import build
from draftsmith.builder.plan import BuildPlan
from draftsmith.builder.progress import Silent

from tests.builder.evaluate.results_cases import make_results, make_row
from tests.tiny_models import write_tiny_checkpoint

QUESTIONS = [
    {"question_id": 1, "category": "writing", "turns": ["the other the other the other", "and the"]},
    {"question_id": 2, "category": "qa", "turns": ["where in the end"]},
    {"question_id": 3, "category": "rag", "turns": ["long " * 200]},
]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("evaluated")
    plan = BuildPlan(
        checkpoint=write_tiny_checkpoint(root / "checkpoint", "llama"),
        output=root / "repository",
        name="tiny",
        precisions=("fp16",),
        max_batch=2,
        max_length=512,
        max_query_len=32,
        num_threads=1,
    )
    build(plan, Silent())
    return plan.folder_of("fp16")


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "question.jsonl"
    path.write_text("\n".join(map(json.dumps, QUESTIONS)))
    return path


def make_plan(package: Path, file: Path, /, **changes: Any) -> EvaluationPlan:
    values: dict[str, Any] = {
        "configurations": parse_configurations(
            [f"ngram={package},draft=ngram,nodes=6", f"off={package / '1'},draft=off"]
        ),
        "output": file.parent / "out",
        "questions": (file,),
        "max_tokens": 24,
        "has_languages": False,
        "long_context": 0,
        "num_threads": 1,
    }
    return EvaluationPlan(**{**values, **changes})


def test_every_question_has_a_row_a_configuration_and_all_are_equal(package: Path, questions: Path) -> None:
    results = evaluate(make_plan(package, questions), Silent())
    check_results(results)
    rows = read_rows(results.plan.output / "rows.csv")
    names = ("plain", "ngram", "off")
    assert [(row.question_id, row.temperature, row.configuration) for row in rows] == [
        (question, temperature, name) for question in ("1", "2") for temperature in (0.0, 1.0) for name in names
    ]
    assert all(row.matches and row.num_tokens > 0 and row.seconds > row.decode_seconds > 0 for row in rows)
    assert [row.num_turns for row in rows[::6]] == [2, 1]
    assert {row.num_drafted for row in rows if row.configuration != "ngram"} == {0}
    assert all(sum(row.accepted_counts) == row.num_steps for row in rows)
    assert all(sum(i * n for i, n in enumerate(row.accepted_counts)) == row.num_accepted for row in rows)
    assert results.skips_by_task == {"rag": 2}
    assert "expected at most 512 tokens" in results.skips[0].reason
    assert results.is_complete
    assert "| ngram " in (results.plan.output / "table.md").read_text()
    assert "</html>" in (results.plan.output / "report.html").read_text()


def test_a_second_run_goes_on_only_where_it_is_told_and_nothing_changed(package: Path, questions: Path) -> None:
    plan = make_plan(package, questions, temperatures=(0.0,))
    first = evaluate(plan, Silent())
    with pytest.raises(UsageError, match="--resume"):
        evaluate(plan, Silent())
    path = plan.output / "rows.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:6]) + "\n")  # question 2 lacks a configuration
    second = evaluate(make_plan(package, questions, temperatures=(0.0,), resume=True), Silent())
    assert second.rows[:3] == read_rows(path)[:3]
    assert [row.question_id for row in second.rows] == [row.question_id for row in first.rows]
    with pytest.raises(UsageError, match="other max_tokens"):
        evaluate(make_plan(package, questions, temperatures=(0.0,), resume=True, max_tokens=25), Silent())


def test_an_interruption_keeps_what_is_done(package: Path, questions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []

    def run_round(*arguments: Any) -> Any:
        if done:
            raise KeyboardInterrupt
        done.append(arguments)
        return original(*arguments)

    original = evaluation.run_round
    monkeypatch.setattr(evaluation, "run_round", run_round)
    plan = make_plan(package, questions)
    with pytest.raises(KeyboardInterrupt):
        evaluate(plan, Silent())
    assert len(read_rows(plan.output / "rows.csv")) == 3
    assert "The run ended early: 1 of 6 rounds" in (plan.output / "report.html").read_text()


def test_answers_that_differ_fail_the_command() -> None:
    rows = [make_row(configuration="plain"), make_row(first_difference=4)]
    with pytest.raises(MismatchError) as caught:
        check_results(make_results(rows))
    assert caught.value.exit_code == 5
    assert "found 1 of 1 that differ (first: question 1, fast, token 4)" in str(caught.value)


def test_the_command_prints_the_table_or_json(
    package: Path, questions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {
        "config": [f"ngram={package},draft=ngram"],
        "questions": [questions],
        "languages": False,
        "long_context": 0,
        "max_tokens": 8,
        "temperature": [0.0],
        "threads": 1,
        "quiet": True,
    }
    evaluate_configurations(questions.parent / "a", **given)
    shown = capsys.readouterr()
    assert shown.out.startswith("## Mean of tasks, greedy\n\n| configuration |")
    assert "rag: 1 skipped, too long for an engine" in shown.err
    evaluate_configurations(questions.parent / "b", **given, json=True)
    values = json.loads(capsys.readouterr().out)
    assert (values["skipped"], values["num_mismatches"]) == ({"rag": 1}, 0)
    assert {figures["task"] for figures in values["figures"]} == {"multi-turn chat", "qa", "mean", "overall"}


def test_long_prompts_are_as_many_as_was_asked_for(package: Path, questions: Path) -> None:
    (configuration,) = parse_configurations([f"x={package}"])
    facts = read_facts(configuration)
    for given, wanted in (({"questions_per_task": 2}, 2), ({"questions_per_task": 2, "long_questions": 1}, 1), ({}, 6)):
        found = gather_questions(make_plan(package, questions, long_context=64, **given), facts)
        assert sum(question.task == LONG_CONTEXT for question in found) == wanted


def test_what_an_engine_does_not_have_is_refused_before_it_is_loaded(
    package: Path, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(OpenEngine, "__init__")
    for keys, words in (("draft=model", "an engine with a draft model, found none"), ("k=64", "found no draft")):
        plan = make_plan(package, questions, configurations=parse_configurations([f"x={package},{keys}"]))
        with pytest.raises(UsageError, match=words):
            evaluate(plan, Silent())
        assert not plan.output.exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"temperatures": (0.0, 0.0)}, "values that differ, found 0, 0"),
        ({"temperatures": (float("nan"),)}, "from 0 to 100, found nan"),
        ({"max_tokens": 0}, "--max-tokens"),
        ({"questions_per_task": 0}, "--questions-per-task"),
        ({"long_context": 10}, "--long-context"),
        ({"long_questions": 0}, "--long-questions"),
        ({"questions": ()}, "something to ask"),
    ],
)
def test_options_that_cannot_be_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_plan(Path("package"), Path("question.jsonl"), **changes)
    assert words in str(caught.value)
