"""The figures of an evaluation as plain values: for JSON, and a line a task and configuration for a CSV file."""

import csv
import io
from dataclasses import asdict
from typing import Any

from .comparison import Compared, share_steps
from .lineup import Entry
from .results import Results

_LEFT_OUT = ("reached", "is_baseline")


def to_json(results: Results) -> dict[str, Any]:
    """Figures as they are with their shares, and the engines' facts."""
    figures = [
        {**asdict(c.figures), "accepted_share": c.accepted_share, "greedy_share": c.greedy_share}
        for c in results.compared
    ]
    return {"figures": figures, "configurations": [_describe_entry(results, entry) for entry in results.entries]}


def render_csv(results: Results) -> str:
    """A line for every temperature, configuration and task (mean and overall among them), with the engine's facts."""
    entries = {entry.name: _describe_entry(results, entry) for entry in results.entries}
    lines = [_describe_line(c, entries[c.figures.configuration]) for c in results.compared]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _describe_line(compared: Compared, entry: dict[str, Any]) -> dict[str, Any]:
    figures = {name: value for name, value in asdict(compared.figures).items() if name not in _LEFT_OUT}
    facts = {name: value for name, value in entry.items() if not isinstance(value, dict) and name != "configuration"}
    values = {
        **figures,
        "accepted_share": compared.accepted_share,
        "greedy_share": compared.greedy_share,
        **facts,
        "recall_at_k": entry["recall"].get(str(entry["recall_k"])),
    }
    return {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in values.items()}


def _describe_entry(results: Results, entry: Entry) -> dict[str, Any]:
    facts, step = entry.facts, results.draft_steps.get(entry.name)
    token_share, level_share = share_steps(results.draft_steps, results.entries).get(entry.name, (None, None))
    k = entry.configuration.num_candidates if entry.configuration else None
    has_draft = entry.uses_model
    return {
        "configuration": entry.name,
        "baseline": entry.baseline,
        "folder": str(facts.folder),
        "settings": entry.configuration.settings if entry.configuration else "draft=off",
        "head": facts.head if has_draft else "",
        "recall": {str(number): value for number, value in facts.recall.items()} if has_draft else {},
        "recall_k": (facts.recall_k if facts.has_scores_alone else k or facts.recall_k) if has_draft else 0,
        "draft_step_ms": step.token_ms if step else None,
        "draft_step_share": token_share,
        "draft_level_ms": step.level_ms if step else None,
        "draft_level_share": level_share,
        "target_bytes": facts.target_bytes,
        "draft_bytes": facts.draft_bytes if has_draft else 0,
        "ranking_bytes": facts.ranking_bytes if has_draft else 0,
        "draft_slot_bytes": facts.slot_bytes if has_draft else 0,
    }
