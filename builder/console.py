"""Draws progress on a terminal: bars with sizes and times while work runs, one line for each finished stage."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from .progress import Stage


class ConsoleProgress:
    """The command line's ``Progress``: live bars on a terminal, finished stages as lines everywhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[amount]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._depth = 0

    def stage(self, title: str, *, total: float | None = None, unit: str = "") -> Stage:
        """A new stage, drawn below those that are running."""
        return _DrawnStage(self, title, total, unit)

    def open(self, title: str, total: float | None) -> TaskID:
        """Show a bar (called by a stage when it starts)."""
        if self._depth == 0:
            self._bars.start()
        self._depth += 1
        return self._bars.add_task("  " * (self._depth - 1) + title, total=total, amount="")

    def update(self, task: TaskID, done: float, amount: str) -> None:
        """Move a bar."""
        self._bars.update(task, completed=done, amount=amount)

    def close(self, task: TaskID, line: str | None) -> None:
        """Remove a bar and print the finished line."""
        self._bars.remove_task(task)
        self._depth -= 1
        if self._depth == 0:
            self._bars.stop()
        if line is not None:
            self.console.print("  " * self._depth + line, highlight=False, markup=False, soft_wrap=True)


class _DrawnStage:
    def __init__(self, owner: ConsoleProgress, title: str, total: float | None, unit: str) -> None:
        self._owner = owner
        self._title = title
        self._total = total
        self._unit = unit
        self._done = 0.0
        self._notes: list[str] = []
        self._start = 0.0
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._start = time.monotonic()
        self._task = self._owner.open(self._title, self._total)
        return self

    def advance(self, amount: float = 1.0) -> None:
        """More is done."""
        self._done += amount
        if self._task is not None:
            self._owner.update(self._task, self._done, self._amount())

    def note(self, text: str) -> None:
        """Something for the finished line."""
        self._notes.append(text)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.monotonic() - self._start
        facts = [self._amount()] if self._done else []
        facts += [f"{seconds:.1f} s", *self._notes]
        # Short inner stages are drawn while they run and leave no line.
        shown = kind is None and (seconds >= 0.5 or bool(self._notes))
        if self._task is not None:
            self._owner.close(self._task, f"{self._title}: {', '.join(f for f in facts if f)}" if shown else None)

    def _amount(self) -> str:
        if self._unit == "bytes":
            done, total, unit = self._done / 1e6, (self._total or 0) / 1e6, "MB"
        else:
            done, total, unit = self._done, self._total or 0, self._unit
        text = f"{done:,.0f}" + (f"/{total:,.0f}" if total and done < total else "")
        return f"{text} {unit}".strip()
