"""``build-engine evaluate``: configurations side by side on question files; a table, a CSV file and an HTML report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .output import JsonOption, QuietOption, open_progress, print_json, say
from .paths import check_output, to_path

if TYPE_CHECKING:
    from ..evaluate.results import Results

_QUESTIONS = "Questions"


def evaluate_configurations(
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", parser=to_path, metavar="FOLDER", help="Gets rows.csv, table.md and report.html."
        ),
    ],
    config: Annotated[
        list[str],
        typer.Option(
            "--config",
            "-c",
            metavar="NAME=FOLDER[,KEY=VALUE...]",
            help="An engine and how it drafts (repeatable). Keys: draft (auto, model, ngram or off), width, depth,"
            " nodes, k.",
        ),
    ],
    questions: Annotated[
        list[Path] | None,
        typer.Option(
            parser=to_path,
            metavar="FILE",
            help="Spec-Bench question file, JSON lines (repeatable).",
            rich_help_panel=_QUESTIONS,
        ),
    ] = None,
    prompts: Annotated[
        list[Path] | None,
        typer.Option(
            parser=to_path, metavar="FILE", help="Text, a prompt a line (repeatable).", rich_help_panel=_QUESTIONS
        ),
    ] = None,
    questions_per_task: Annotated[
        int | None, typer.Option(help="Evenly spaced questions of each task; default: all.", rich_help_panel=_QUESTIONS)
    ] = None,
    languages: Annotated[
        bool,
        typer.Option(
            "--languages/--no-languages",
            help="Ask our Chinese and Arabic questions too.",
            rich_help_panel=_QUESTIONS,
        ),
    ] = True,
    long_context: Annotated[
        int,
        typer.Option(help="Tokens of our long prompts; 0 leaves them out.", rich_help_panel=_QUESTIONS),
    ] = 5000,
    max_tokens: Annotated[int, typer.Option(help="Most tokens of an answer.")] = 256,
    temperature: Annotated[list[float] | None, typer.Option(help="0 is greedy (repeatable); default: 0 and 1.")] = None,
    seed: Annotated[int, typer.Option(help="Of the first question; each has its own.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Threads of an engine; default: all cores.")] = None,
    slots: Annotated[int, typer.Option(help="Cache slots of an engine; one request runs at a time.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what is in the folder.")] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure configurations of speculative decoding against plain decoding, in one interleaved run.

    Every answer must be plain decoding's, token for token, at temperature 0 and with a seed above; exit code 5 says
    that some was not. Ctrl-C keeps what is done.

    Example: [cyan]build-engine evaluate -c ngram=repository/smollm2_int8,draft=ngram --questions question.jsonl
    -o evaluation[/cyan]
    """
    check_output(output)
    from ..evaluate.configuration import parse_configurations
    from ..evaluate.evaluation import check_results, evaluate
    from ..evaluate.plan import DEFAULT_TEMPERATURES, EvaluationPlan

    plan = EvaluationPlan(
        configurations=parse_configurations(config),
        output=output,
        questions=tuple(questions or ()),
        prompts=tuple(prompts or ()),
        questions_per_task=questions_per_task,
        max_tokens=max_tokens,
        temperatures=tuple(temperature or DEFAULT_TEMPERATURES),
        seed=seed,
        has_languages=languages,
        long_context=long_context,
        num_threads=threads,
        num_slots=slots,
        resume=resume,
    )
    results = evaluate(plan, open_progress(quiet))
    _show(results, json=json)
    say(f"report: {output / 'report.html'}", quiet=quiet)
    check_results(results)


def _show(results: "Results", *, json: bool) -> None:
    from ..evaluate.table import render_markdown, to_json

    if json:
        values = to_json(results.figures, results.entries)
        skipped = {"skipped": results.skips_by_task, "num_mismatches": len(results.mismatches)}
        print_json(values | skipped | {"machine": dict(results.machine)})
    elif results.rows:
        print(render_markdown(results.figures, results.entries), end="")
    for task, count in results.skips_by_task.items():
        say(f"{task}: {count} skipped, too long for an engine")
