"""The table of an evaluation, as Markdown (which reads well on a terminal too) and as plain JSON values."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from .configuration import Configuration
from .engine_facts import EngineFacts
from .lineup import Entry
from .summary import MEAN, OVERALL, Figures
from .tasks import title_of

SPEED_HEAD = (
    "task",
    "questions",
    "tokens/s",
    "speed-up",
    "decode tokens/s",
    "decode speed-up",
    "accepted length",
    "draft ms",
    "verify ms",
    "other ms",
    "mismatches",
)
ENGINE_HEAD = ("configuration", "engine", "settings", "ranking recall@k", "extra memory")


def describe_task(task: str) -> str:
    """A task's title; the two rows that sum up are called what they are."""
    return {MEAN: "Mean of tasks", OVERALL: "All questions"}.get(task) or title_of(task)


def describe_temperature(temperature: float) -> str:
    """``greedy`` or ``temperature 1``."""
    return f"temperature {temperature:g}" if temperature else "greedy"


def speed_cells(figures: Figures) -> list[str]:
    """The cells under ``SPEED_HEAD``."""
    f = figures
    return [
        describe_task(f.task),
        str(f.num_questions),
        f"{f.tokens_per_second:.1f}",
        f"{f.speed_up:.2f}x",
        f"{f.decode_tokens_per_second:.1f}",
        f"{f.decode_speed_up:.2f}x",
        f"{f.accepted_length:.2f}",
        f"{f.draft_ms:.2f}",
        f"{f.verify_ms:.2f}",
        f"{f.other_ms:.2f}",
        str(f.num_mismatches),
    ]


def engine_cells(entry: Entry) -> list[str]:
    """The cells under ``ENGINE_HEAD``."""
    configuration, facts = entry.configuration, entry.facts
    settings = configuration.settings if configuration else "draft=off"
    return [entry.name, facts.label, settings, describe_recall(configuration, facts), describe_memory(entry)]


def describe_recall(configuration: Configuration | None, facts: EngineFacts) -> str:
    """``98.4 % (k = 2,048)`` at the configuration's k, or at the nearest k that the build measured."""
    if configuration is None or configuration.draft in ("off", "ngram") or not facts.recall:
        return "-"
    wanted = configuration.num_candidates or facts.num_candidates
    k = min(facts.recall, key=lambda measured: abs(measured - wanted))
    return f"{facts.recall[k]:.1%} (k = {k:,})"


def describe_memory(entry: Entry) -> str:
    """``8.1 MB (5.8 %) + 0.4 MB a slot``: the draft's files beside the target's, and its cache of one request."""
    facts = entry.facts
    if entry.configuration is None or entry.configuration.draft in ("off", "ngram") or not facts.has_draft:
        return "none"
    return f"{facts.draft_bytes / 1e6:.1f} MB ({facts.extra_share:.1%}) + {facts.slot_bytes / 1e6:.1f} MB a slot"


def render_markdown(figures: Sequence[Figures], entries: Sequence[Entry]) -> str:
    """A table a temperature, and one of the engines."""
    parts = []
    for temperature in dict.fromkeys(f.temperature for f in figures):
        here = [f for f in figures if f.temperature == temperature]
        rows = [[f.configuration, *speed_cells(f)] for f in here]
        title = describe_temperature(temperature)
        parts.append(f"## {title[0].upper()}{title[1:]}\n\n{_table(('configuration', *SPEED_HEAD), rows, num_text=2)}")
    engines = _table(ENGINE_HEAD, [engine_cells(entry) for entry in entries], num_text=len(ENGINE_HEAD))
    parts.append(f"## Engines\n\n{engines}")
    return "\n\n".join(parts) + "\n"


def to_json(figures: Sequence[Figures], entries: Sequence[Entry]) -> dict[str, Any]:
    """Plain values: figures as they are, and the engines' facts."""
    engines = [
        {
            "configuration": entry.name,
            "baseline": entry.baseline,
            "folder": str(entry.facts.folder),
            "settings": entry.configuration.settings if entry.configuration else "draft=off",
            "recall": {str(k): value for k, value in entry.facts.recall.items()},
            "draft_bytes": entry.facts.draft_bytes,
            "target_bytes": entry.facts.target_bytes,
            "draft_slot_bytes": entry.facts.slot_bytes,
        }
        for entry in entries
    ]
    return {"figures": [asdict(f) for f in figures], "configurations": engines}


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
