"""Questions: Spec-Bench's files (a JSON object a line) and plain files (a prompt a line)."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .tasks import order_tasks, task_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """``turns``: what the user says, one after the other; an answer comes between two of them."""

    question_id: str
    category: str
    turns: tuple[str, ...]

    @property
    def task(self) -> str:
        """The row that the question counts in."""
        return task_of(self.category)


def read_questions(path: Path) -> list[Question]:
    """A file with ``question_id``, ``category`` and ``turns`` a line; other keys (``reference``) are not read.

    Raises:
        UsageError: the file cannot be read, a line is not a question, or there is none.
    """
    questions = parse_questions(_read_text(path, "--questions"), str(path))
    if not questions:
        raise UsageError("--questions", expected="at least one question", found="an empty file", where=str(path))
    return questions


def parse_questions(text: str, where: str) -> list[Question]:
    """The questions of a file's text; blank lines are skipped. Raises ``UsageError`` naming the line."""
    questions = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            questions.append(_parse_question(line, f"{where}:{number}"))
    return questions


def read_prompts(path: Path) -> list[Question]:
    """A prompt a line of UTF-8 text; the file's name without its ending is their task.

    Raises:
        UsageError: the file cannot be read, or has no line.
    """
    lines = [line.strip() for line in _read_text(path, "--prompts").splitlines()]
    prompts = [line for line in lines if line]
    if not prompts:
        raise UsageError("--prompts", expected="a prompt a line", found="an empty file", where=str(path))
    return [
        Question(question_id=f"{path.stem}-{number}", category=path.stem, turns=(prompt,))
        for number, prompt in enumerate(prompts, 1)
    ]


def choose_questions(questions: Iterable[Question], per_task: int | None) -> list[Question]:
    """At most ``per_task`` questions of each task, evenly spaced over those given (always the same); tasks in order.

    Raises:
        UsageError: an id is given twice.
    """
    by_task: dict[str, list[Question]] = {}
    seen: set[str] = set()
    for question in questions:
        if question.question_id in seen:
            raise UsageError("question_id", expected="an id once", found=f"{question.question_id!r} twice")
        seen.add(question.question_id)
        by_task.setdefault(question.task, []).append(question)
    return [question for task in order_tasks(by_task) for question in choose_evenly(by_task[task], per_task)]


def choose_evenly(questions: Sequence[Question], count: int | None) -> list[Question]:
    """``count`` of them, the middle one of each of as many equal parts; all where there are not more."""
    total = len(questions)
    if count is None or count >= total:
        return list(questions)
    return [questions[(2 * index + 1) * total // (2 * count)] for index in range(count)]


def _parse_question(line: str, where: str) -> Question:
    try:
        values: Any = json.loads(line)
    except ValueError as error:
        raise UsageError("question", expected="a JSON object a line", found=str(error), where=where) from error
    if not isinstance(values, dict):
        raise UsageError("question", expected="a JSON object", found=type(values).__name__, where=where)
    question_id, category, turns = (values.get(name) for name in ("question_id", "category", "turns"))
    if isinstance(question_id, bool) or not isinstance(question_id, (int, str)) or question_id == "":
        raise UsageError("question_id", expected="a number or a name", found=repr(question_id), where=where)
    if not isinstance(category, str) or not category:
        raise UsageError("category", expected="a name", found=repr(category), where=where)
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn for turn in turns):
        raise UsageError("turns", expected="a list of texts", found=repr(turns)[:60], where=where)
    return Question(question_id=str(question_id), category=category, turns=tuple(turns))


def _read_text(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = (error.strerror or "an error").lower()
        raise UsageError(option, expected="a readable file", found=reason, where=str(path)) from error
    except UnicodeDecodeError as error:
        raise UsageError(option, expected="UTF-8", found=f"byte {error.start} is not", where=str(path)) from error
