"""Results without an engine: seven lines of one target on eight tasks, with made-up but plausible numbers."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from draftsmith.builder.evaluate.configuration import parse_configurations
from draftsmith.builder.evaluate.engine_facts import EngineFacts
from draftsmith.builder.evaluate.lineup import Entry
from draftsmith.builder.evaluate.plan import EvaluationPlan
from draftsmith.builder.evaluate.results import Results, Skip
from draftsmith.builder.evaluate.rows import Row
from draftsmith.builder.evaluate.tasks import ARABIC, CHINESE, LONG_CONTEXT, SPEC_BENCH_TASKS

FACTS = EngineFacts(
    folder=Path("engine"),
    model_name="smollm2",
    precision="int8",
    backend="onnxruntime",
    target_key=("a" * 64,),
    is_chat=True,
    max_length=4096,
    has_draft=True,
    draft_name="drafty",
    head="speculative",
    num_candidates=2048,
    has_scores_alone=False,
    target_bytes=140_000_000,
    draft_bytes=7_000_000,
    ranking_bytes=3_500_000,
    slot_bytes=4_000_000,
    recall={256: 0.912, 512: 0.953, 1024: 0.971, 2048: 0.984, 4096: 0.992},
    recall_k=2048,
)
ROW = Row(
    task="qa",
    category="qa",
    question_id="1",
    configuration="fast",
    baseline="plain",
    temperature=0.0,
    seed=0,
    num_turns=1,
    num_prompt_tokens=10,
    num_tokens=100,
    seconds=2.0,
    num_decoded=99,
    decode_seconds=1.5,
    num_steps=33,
    num_drafted=132,
    num_accepted=66,
    draft_ms=330.0,
    verify_ms=660.0,
    other_ms=66.0,
    first_difference=-1,
    accepted_counts=(3, 5, 15, 10),
)


def make_row(**changes: Any) -> Row:
    """``ROW`` with changes."""
    return replace(ROW, **changes)


def make_entry(name: str = "fast", settings: str = "draft=model", **facts: Any) -> Entry:
    """A configuration's entry, or the baseline's for ``plain``."""
    found = replace(FACTS, **facts)
    (configuration,) = parse_configurations([f"{name}x=engine,{settings}"])
    own = None if name == "plain" else replace(configuration, name=name)
    return Entry(name=name, baseline="plain", configuration=own, facts=found)


def make_results(rows: list[Row], entries: tuple[Entry, ...] | None = None, **changes: Any) -> Results:
    """Results of rows, complete."""
    entries = entries or (make_entry("plain"), make_entry())
    configurations = tuple(entry.configuration for entry in entries if entry.configuration is not None)
    values: dict[str, Any] = {
        "plan": EvaluationPlan(configurations=configurations, output=Path("out"), questions=(Path("question.jsonl"),)),
        "entries": entries,
        "rows": rows,
        "skips": [],
        "machine": {"date": "2026-12-01 03:00 UTC", "processor": "A Processor (avx2)", "versions": "Python 3.11"},
        "num_wanted": len({(row.question_id, row.temperature) for row in rows}),
    }
    return Results(**{**values, **changes})


def make_large_results() -> Results:
    """What a long run looks like."""
    speeds = {"full": 1.2, "FR-Spec": 1.45, "VocabTrim": 1.5, "speculative": 2.1, "grouped": 1.9, "n-gram": 1.35}
    entries = (
        make_entry("plain"),
        make_entry("full", head="full", num_candidates=0, recall={}, draft_bytes=5_000_000),
        make_entry("FR-Spec", head="subset", recall={}, num_candidates=0),
        make_entry("VocabTrim", head="subset", recall={}, num_candidates=0),
        make_entry("speculative"),
        make_entry("grouped", folder=Path("grouped"), recall={256: 0.83, 1024: 0.94, 2048: 0.961, 4096: 0.982}),
        make_entry("n-gram", "draft=ngram"),
    )
    source = random.Random(1)
    tasks = (*SPEC_BENCH_TASKS, CHINESE, ARABIC)
    rows = [
        _plausible_row(entry.name, speeds, task, temperature, source)
        for task in tasks
        for temperature in (0.0, 1.0)
        for entry in entries
    ]
    skips = [
        Skip(question_id="long-1", task=LONG_CONTEXT, temperature=t, reason="expected at most 4096 tokens, found 5100")
        for t in (0.0, 1.0)
    ]
    return make_results(rows, entries, skips=skips, num_wanted=2 * len(tasks) + 2)


def _plausible_row(name: str, speeds: dict[str, float], task: str, temperature: float, source: random.Random) -> Row:
    fast = speeds.get(name, 1.0)
    gain = 1.0 + (fast - 1.0) * source.uniform(0.5, 1.4) * (0.9 if temperature else 1.0) if name in speeds else 1.0
    steps = round(255 / (1.3 * gain if name in speeds else 1.0))
    counts = [steps]
    for _ in range(6 if name in speeds else 0):
        counts.append(int(counts[-1] * min(0.9, 0.42 * gain)))
    histogram = [a - b for a, b in zip(counts, [*counts[1:], 0], strict=True)]
    accepted = sum(index * count for index, count in enumerate(histogram))
    return make_row(
        task=task,
        category=task,
        question_id=f"{task}-1",
        configuration=name,
        temperature=temperature,
        num_tokens=256,
        seconds=256 / 40 / gain,
        num_decoded=255,
        decode_seconds=255 / 45 / gain,
        num_steps=steps,
        num_drafted=5 * steps if name in speeds else 0,
        num_accepted=accepted,
        draft_ms=(1.5 if name in speeds else 0.05) * steps,
        verify_ms=(23.0 if name in speeds else 20.0) * steps,
        other_ms=0.8 * steps,
        accepted_counts=tuple(histogram),
    )
