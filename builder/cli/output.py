"""What every command does with its results: progress to stderr, the result to stdout, as text or as JSON."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ..progress import Progress, Silent

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]


def open_progress(quiet: bool) -> Progress:
    """Bars on stderr, or nothing."""
    if quiet:
        return Silent()
    from rich.console import Console

    from ..console import ConsoleProgress

    return ConsoleProgress(Console(stderr=True))


def say(text: str, *, quiet: bool = False) -> None:
    """A line on stderr."""
    if not quiet:
        print(text, file=sys.stderr, flush=True)


@contextmanager
def resumable() -> Iterator[None]:
    """Ctrl-C inside says how to go on; it is raised again."""
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted; what is done is kept: go on with --resume")
        raise


def print_json(value: Any) -> None:
    """One JSON document on stdout; paths become strings."""
    print(json.dumps(value, indent=2, default=_plain, ensure_ascii=False))


def print_facts(facts: Mapping[str, object], indent: str = "") -> None:
    """``name  value`` lines, aligned."""
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        print(f"{indent}{name:<{width}}  {value}")


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns on stdout; numbers to the right."""
    cells = [[str(value) for value in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    right = [all(isinstance(row[i], (int, float)) for row in rows) for i in range(len(head))]
    for row in cells:
        line = "  ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(row, widths, right, strict=True))
        print(line.rstrip())


def megabytes(num_bytes: float) -> str:
    """``134.5 MB``, or GB from 10 GB on."""
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 1e10 else f"{num_bytes / 1e6:,.1f} MB"


def is_debug() -> bool:
    """True with ``--debug`` or DRAFTSMITH_DEBUG."""
    return bool(os.environ.get("DRAFTSMITH_DEBUG"))


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
