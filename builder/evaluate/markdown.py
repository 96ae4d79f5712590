"""The tables of an evaluation as Markdown, which reads well on a terminal too."""

from collections.abc import Callable, Sequence

from .comparison import Compared, share_steps
from .results import Results
from .summary import MEAN, OVERALL
from .table import (
    ENGINE_HEAD,
    NOTHING,
    SPEED_HEAD,
    STEP_HEAD,
    describe_task,
    describe_temperature,
    engine_cells,
    speed_cells,
    step_cells,
)

_MEAN_HEAD = ("configuration", *SPEED_HEAD[1:])


def render_overview(results: Results) -> str:
    """A line a configuration: the mean of tasks at each temperature, speed-up and accepted length by task, engines."""
    compared = results.compared
    parts = []
    for temperature in dict.fromkeys(c.figures.temperature for c in compared):
        here = [c for c in compared if c.figures.temperature == temperature]
        title = describe_temperature(temperature)
        means = [[c.figures.configuration, *speed_cells(c)[1:]] for c in here if c.figures.task == MEAN]
        parts.append(f"## Mean of tasks, {title}\n\n{_table(_MEAN_HEAD, means, num_text=1)}")
        speed = _by_task(here, lambda c: _times(c.figures.speed_up))
        parts.append(f"## Speed-up by task, {title}\n\n{speed}")
        decoding = _by_task(here, lambda c: _times(c.figures.decode_speed_up))
        parts.append(f"## Speed-up behind the first token, {title}\n\n{decoding}")
        parts.append(f"## Accepted length, {title}\n\n{_by_task(here, lambda c: f'{c.figures.accepted_length:.2f}')}")
    parts.append(f"## Drafts\n\n{_engines(results)}")
    return "\n\n".join(parts) + "\n"


def render_markdown(results: Results) -> str:
    """The overview, and every figure of every task."""
    parts = [render_overview(results).rstrip()]
    compared = results.compared
    for temperature in dict.fromkeys(c.figures.temperature for c in compared):
        here = [c for c in compared if c.figures.temperature == temperature]
        rows = [[c.figures.configuration, *speed_cells(c)] for c in here]
        table = _table(("configuration", *SPEED_HEAD), rows, num_text=2)
        parts.append(f"## Every task, {describe_temperature(temperature)}\n\n{table}")
    return "\n\n".join(parts) + "\n"


def _by_task(compared: Sequence[Compared], cell: Callable[[Compared], str]) -> str:
    """A column a task, the mean first."""
    tasks = list(dict.fromkeys(c.figures.task for c in compared if c.figures.task not in (MEAN, OVERALL)))
    found = {(c.figures.configuration, c.figures.task): cell(c) for c in compared}
    names = dict.fromkeys(c.figures.configuration for c in compared)
    rows = [[name, *(found.get((name, task), NOTHING) for task in (MEAN, *tasks))] for name in names]
    return _table(("configuration", *map(describe_task, (MEAN, *tasks))), rows, num_text=1)


def _engines(results: Results) -> str:
    shares = share_steps(results.draft_steps, results.entries)
    rows = [[*engine_cells(entry), *step_cells(entry.name, results.draft_steps, shares)] for entry in results.entries]
    return _table((*ENGINE_HEAD, *STEP_HEAD), rows, num_text=len(ENGINE_HEAD))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, num_text: int) -> str:
    """Markdown with aligned columns; the first ``num_text`` are text, the others numbers."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    rule = "|".join("-" * (w + 2) if i < num_text else "-" * (w + 1) + ":" for i, w in enumerate(widths))
    lines = [_line(head, widths, num_text), f"|{rule}|", *(_line(row, widths, num_text) for row in rows)]
    return "\n".join(lines)


def _line(row: Sequence[str], widths: Sequence[int], num_text: int) -> str:
    cells = [
        cell.ljust(w) if i < num_text else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
    ]
    return "| " + " | ".join(cells) + " |"


def _times(speed_up: float) -> str:
    """``1.25x``; a dash where answers ended at once."""
    return f"{speed_up:.2f}x" if speed_up else NOTHING
