"""``build-engine evaluate``: configurations side by side on question files; a table, CSV files and an HTML report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import JsonOption, QuietOption, open_progress, print_json, resumable, say
from .paths import check_output, to_path

if TYPE_CHECKING:
    from ..evaluate.plan import EvaluationPlan
    from ..evaluate.results import Results

_QUESTIONS = "Questions"

Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        parser=to_path,
        metavar="FOLDER",
        help="Gets rows.csv, figures.csv, table.md and report.html.",
    ),
]
Config = Annotated[
    list[str],
    typer.Option(
        "--config",
        "-c",
        metavar="NAME=FOLDER[,KEY=VALUE...]",
        help="An engine and how it drafts (repeatable). Keys: draft (auto, model, ngram or off), width, depth,"
        " nodes, k, tree (adaptive, or fixed: always that large).",
    ),
]
Questions = Annotated[
    list[Path] | None,
    typer.Option(
        parser=to_path,
        metavar="FILE",
        help="Spec-Bench question file, JSON lines (repeatable).",
        rich_help_panel=_QUESTIONS,
    ),
]
Prompts = Annotated[
    list[Path] | None,
    typer.Option(
        parser=to_path, metavar="FILE", help="Text, a prompt a line (repeatable).", rich_help_panel=_QUESTIONS
    ),
]
QuestionsPerTask = Annotated[
    int | None, typer.Option(help="Evenly spaced questions of each task; default: all.", rich_help_panel=_QUESTIONS)
]
Languages = Annotated[
    bool,
    typer.Option(
        "--languages/--no-languages", help="Ask our Chinese and Arabic questions too.", rich_help_panel=_QUESTIONS
    ),
]
LongContext = Annotated[
    int, typer.Option(help="Tokens of our long prompts; 0 leaves them out.", rich_help_panel=_QUESTIONS)
]
LongQuestions = Annotated[
    int | None,
    typer.Option(help="Long prompts, which take longest; default: as of a task.", rich_help_panel=_QUESTIONS),
]
MaxTokens = Annotated[int, typer.Option(help="Most tokens of an answer.")]
Temperatures = Annotated[list[float] | None, typer.Option(help="0 is greedy (repeatable); default: 0 and 1.")]
Seed = Annotated[int, typer.Option(help="Of the first question; each has its own.")]
Threads = Annotated[int | None, typer.Option(help="Threads of an engine; default: all cores.")]
Slots = Annotated[int, typer.Option(help="Cache slots of an engine; one request runs at a time.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with what is in the folder.")]


def evaluate_configurations(
    output: Output,
    config: Config,
    questions: Questions = None,
    prompts: Prompts = None,
    questions_per_task: QuestionsPerTask = None,
    languages: Languages = True,
    long_context: LongContext = 5000,
    long_questions: LongQuestions = None,
    max_tokens: MaxTokens = 256,
    temperature: Temperatures = None,
    seed: Seed = 0,
    threads: Threads = None,
    slots: Slots = 1,
    resume: Resume = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure configurations of speculative decoding against plain decoding, in one interleaved run.

    Every answer must be plain decoding's, token for token, at temperature 0 and with a seed above; exit code 5 says
    that some was not. Ctrl-C keeps what is done.

    Example: [cyan]build-engine evaluate -c ngram=repository/smollm2_int8,draft=ngram --questions question.jsonl
    -o evaluation[/cyan]
    """
    given = dict(locals())
    check_output(output)
    from ..evaluate.evaluation import check_results, evaluate

    plan = _make_plan(given)
    with resumable():
        results = evaluate(plan, open_progress(quiet))
    _show(results, json=json)
    say(f"report: {output / 'report.html'}", quiet=quiet)
    check_results(results)


def _make_plan(given: dict[str, Any]) -> "EvaluationPlan":
    """``given``: the command's options by parameter name."""
    from ..evaluate.configuration import parse_configurations
    from ..evaluate.plan import DEFAULT_TEMPERATURES, EvaluationPlan

    return EvaluationPlan(
        configurations=parse_configurations(given["config"]),
        output=given["output"],
        questions=tuple(given["questions"] or ()),
        prompts=tuple(given["prompts"] or ()),
        questions_per_task=given["questions_per_task"],
        max_tokens=given["max_tokens"],
        temperatures=tuple(given["temperature"] or DEFAULT_TEMPERATURES),
        seed=given["seed"],
        has_languages=given["languages"],
        long_context=given["long_context"],
        long_questions=given["long_questions"],
        num_threads=given["threads"],
        num_slots=given["slots"],
        resume=given["resume"],
    )


def _show(results: "Results", *, json: bool) -> None:
    from ..evaluate.markdown import render_overview
    from ..evaluate.values import to_json

    if json:
        skipped = {"skipped": results.skips_by_task, "num_mismatches": len(results.mismatches)}
        print_json(to_json(results) | skipped | {"machine": dict(results.machine)})
    elif results.rows:
        print(render_overview(results), end="")
    for task, count in results.skips_by_task.items():
        say(f"{task}: {count} skipped, too long for an engine")
