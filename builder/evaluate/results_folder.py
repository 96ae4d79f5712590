"""The folder of an evaluation: rows.csv as it goes; table.md, figures.csv and report.html of what is there."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .lineup import Entry
from .markdown import render_markdown
from .page import render_page
from .plan import EvaluationPlan
from .results import Results
from .rows import Row, RowFile, read_rows
from .values import render_csv

ROWS, TABLE, FIGURES, REPORT, SETTINGS = "rows.csv", "table.md", "figures.csv", "report.html", "settings.json"


def open_rows(plan: EvaluationPlan, entries: Sequence[Entry]) -> tuple[RowFile, list[Row]]:
    """The row file of a new run, or of one that goes on; and the rows that are done.

    Raises:
        UsageError: there are rows and the plan does not resume, or they were made with other settings.
    """
    folder = plan.output
    settings = describe_settings(plan, entries)
    kept: list[Row] = []
    if (folder / ROWS).exists():
        if not plan.resume:
            action = "Add --resume to go on with them, or choose another folder"
            raise UsageError(
                "--output", expected=f"a folder without {ROWS}", found="one", where=str(folder), action=action
            )
        _check_settings(folder / SETTINGS, settings)
        kept = keep_whole_questions(read_rows(folder / ROWS), [entry.name for entry in entries])
    folder.mkdir(parents=True, exist_ok=True)
    write_beside(folder / SETTINGS, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
    return RowFile(folder / ROWS, kept), kept


def keep_whole_questions(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """The rows of questions that every configuration has answered, in order."""
    groups: dict[tuple[str, float], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.question_id, row.temperature].append(row)
    whole = [group for group in groups.values() if sorted(row.configuration for row in group) == sorted(names)]
    return [row for group in whole for row in group]


def write_results(results: Results) -> None:
    """table.md, figures.csv and report.html; nothing where nothing was measured."""
    if not results.rows:
        return
    write_beside(results.plan.output / TABLE, render_markdown(results))
    write_beside(results.plan.output / FIGURES, render_csv(results))
    write_beside(results.plan.output / REPORT, render_page(results))


def describe_settings(plan: EvaluationPlan, entries: Sequence[Entry]) -> dict[str, Any]:
    """What the rows depend on; rows of equal settings belong together."""
    return {
        "max_tokens": plan.max_tokens,
        "seed": plan.seed,
        "threads": plan.num_threads,
        "slots": plan.num_slots,
        "configurations": {
            entry.name: {
                "baseline": entry.baseline,
                "target": list(entry.facts.target_key),
                "draft_bytes": entry.facts.draft_bytes,
                "settings": entry.configuration.settings if entry.configuration else "",
            }
            for entry in entries
        },
    }


def write_beside(path: Path, text: str) -> None:
    """Write a file beside ``path`` and rename it, so that a reader never sees half of it."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _check_settings(path: Path, settings: dict[str, Any]) -> None:
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            "--resume", expected="the settings of the earlier run", found=str(error), where=str(path)
        ) from error
    other = [name for name, value in settings.items() if not isinstance(earlier, dict) or earlier.get(name) != value]
    if other:
        found = f"other {', '.join(other)}"
        raise UsageError("--resume", expected="the settings of the earlier run", found=found, where=str(path))
