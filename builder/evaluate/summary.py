"""Rows become figures: one set a task, the mean over tasks, and all questions together."""

from collections.abc import Sequence
from dataclasses import dataclass

from .rounds import add_counts
from .rows import Row
from .tasks import order_tasks, tasks_of_mean

MEAN, OVERALL = "mean", "overall"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One configuration at one temperature on one task (``MEAN``: each task counts the same; ``OVERALL``: each token).

    ``tokens_per_second``: over whole answers, prompts included, as Spec-Bench counts; ``decode_tokens_per_second``:
    behind the first token. The speed-ups are over plain decoding of the same questions. ``accepted_length``: tokens a
    target step gives. Milliseconds are a target step's. ``reached[a]``: share of steps that accepted at least ``a``
    drafted tokens.
    """

    temperature: float
    configuration: str
    is_baseline: bool
    task: str
    num_questions: int
    num_tokens: int
    tokens_per_second: float
    speed_up: float
    decode_tokens_per_second: float
    decode_speed_up: float
    accepted_length: float
    acceptance_rate: float
    draft_ms: float
    verify_ms: float
    other_ms: float
    num_mismatches: int
    reached: tuple[float, ...]

    @property
    def step_ms(self) -> float:
        """A whole target step with its draft."""
        return self.draft_ms + self.verify_ms + self.other_ms


def summarise(rows: Sequence[Row]) -> list[Figures]:
    """Figures by temperature, then configuration (both as they first come), then task, mean and overall."""
    figures: list[Figures] = []
    for temperature in dict.fromkeys(row.temperature for row in rows):
        here = [row for row in rows if row.temperature == temperature]
        for name in dict.fromkeys(row.configuration for row in here):
            own = [row for row in here if row.configuration == name]
            figures += _summarise_one(own, [row for row in here if row.configuration == own[0].baseline])
    return figures


def _summarise_one(rows: list[Row], plain: list[Row]) -> list[Figures]:
    tasks = order_tasks(row.task for row in rows)
    averaged = tasks_of_mean(tasks)
    by_task = {
        task: _add_up(task, [r for r in rows if r.task == task], [r for r in plain if r.task == task]) for task in tasks
    }
    overall = _add_up(OVERALL, [r for r in rows if r.task in averaged], [r for r in plain if r.task in averaged])
    return [*by_task.values(), _average([by_task[task] for task in averaged], overall), overall]


def _add_up(task: str, rows: Sequence[Row], plain: Sequence[Row]) -> Figures:
    steps = sum(row.num_steps for row in rows)
    accepted = sum(row.num_accepted for row in rows)
    speed, decode_speed = _speed(rows), _decode_speed(rows)
    return Figures(
        temperature=rows[0].temperature,
        configuration=rows[0].configuration,
        is_baseline=rows[0].is_baseline,
        task=task,
        num_questions=len(rows),
        num_tokens=sum(row.num_tokens for row in rows),
        tokens_per_second=speed,
        speed_up=_ratio(speed, _speed(plain)),
        decode_tokens_per_second=decode_speed,
        decode_speed_up=_ratio(decode_speed, _decode_speed(plain)),
        accepted_length=1.0 + _ratio(accepted, steps),
        acceptance_rate=_ratio(accepted, sum(row.num_drafted for row in rows)),
        draft_ms=_ratio(sum(row.draft_ms for row in rows), steps),
        verify_ms=_ratio(sum(row.verify_ms for row in rows), steps),
        other_ms=_ratio(sum(row.other_ms for row in rows), steps),
        num_mismatches=sum(not row.matches for row in rows),
        reached=find_reached(add_counts([row.accepted_counts for row in rows])),
    )


def _average(parts: Sequence[Figures], overall: Figures) -> Figures:
    """Every task with the same weight; counts are sums. A task whose answers ended at once has no speed to count."""
    answered = [part for part in parts if part.num_tokens]
    decoded = [part for part in answered if part.decode_tokens_per_second]
    of_answers = {"tokens_per_second", "speed_up"}

    def mean(name: str) -> float:
        values: list[float] = [getattr(part, name) for part in (answered if name in of_answers else decoded)]
        return _ratio(sum(values), len(values))

    return Figures(
        temperature=overall.temperature,
        configuration=overall.configuration,
        is_baseline=overall.is_baseline,
        task=MEAN,
        num_questions=overall.num_questions,
        num_tokens=overall.num_tokens,
        tokens_per_second=mean("tokens_per_second"),
        speed_up=mean("speed_up"),
        decode_tokens_per_second=mean("decode_tokens_per_second"),
        decode_speed_up=mean("decode_speed_up"),
        accepted_length=mean("accepted_length"),
        acceptance_rate=mean("acceptance_rate"),
        draft_ms=mean("draft_ms"),
        verify_ms=mean("verify_ms"),
        other_ms=mean("other_ms"),
        num_mismatches=overall.num_mismatches,
        reached=overall.reached,
    )


def find_reached(counts: Sequence[int]) -> tuple[float, ...]:
    """Of a histogram of accepted lengths: the share of steps that accepted at least 0, 1, 2, ... tokens."""
    total = sum(counts)
    return tuple(sum(counts[length:]) / total for length in range(len(counts))) if total else ()


def _speed(rows: Sequence[Row]) -> float:
    return _ratio(sum(row.num_tokens for row in rows), sum(row.seconds for row in rows))


def _decode_speed(rows: Sequence[Row]) -> float:
    return _ratio(sum(row.num_decoded for row in rows), sum(row.decode_seconds for row in rows))


def _ratio(value: float, by: float) -> float:
    """0 where there is nothing to divide by (answers of one token have no steps)."""
    return value / by if by else 0.0
