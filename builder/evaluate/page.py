"""The HTML report: one file that needs nothing else, neither network nor script."""

from collections.abc import Mapping, Sequence
from html import escape

from .charts import colour_entries, draw_accepted, draw_recall, draw_speed_ups, draw_step_times, find_ranked
from .comparison import Compared, share_steps
from .plots import series_style
from .results import Results
from .style import CSS
from .summary import MEAN, OVERALL, Figures
from .table import (
    ENGINE_HEAD,
    SPEED_HEAD,
    STEP_HEAD,
    describe_task,
    describe_temperature,
    engine_cells,
    speed_cells,
    step_cells,
)

_SHOWN_SKIPS = 5


def render_page(results: Results) -> str:
    """The whole page."""
    figures = results.figures
    colours = colour_entries(results.entries)
    models = ", ".join(dict.fromkeys(entry.facts.label for entry in results.entries))
    title = f"Speculative decoding of {models}"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(_describe_run(results))}</p>',
        _draw_notes(results),
        _draw_tiles(results, figures),
        _draw_speed_ups(figures, colours),
        _draw_details(results, figures, colours),
        _draw_tables(results),
        _draw_facts(results),
        "<footer>Written by <b>build-engine evaluate</b> of draftsmith.</footer>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>\n<body><main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main></body></html>\n"
    )


def _describe_run(results: Results) -> str:
    questions = len({row.question_id for row in results.rows})
    names = [entry.name for entry in results.entries if not entry.is_baseline]
    return (
        f"{questions} questions, each answered by plain decoding and by {len(names)} "
        f"configuration{'s' if len(names) != 1 else ''} in turn on the same machine in the same run."
    )


def _draw_notes(results: Results) -> str:
    notes = []
    if not results.is_complete:
        notes.append(f"The run ended early: {results.num_done} of {results.num_wanted} rounds are in this report.")
    if results.mismatches:
        first = ", ".join(
            f"{row.question_id} ({row.configuration}, {describe_temperature(row.temperature)}, "
            f"token {row.first_difference})"
            for row in results.mismatches[:_SHOWN_SKIPS]
        )
        notes.append(f"{len(results.mismatches)} answers are not plain decoding's: {first}.")
    for task, count in results.skips_by_task.items():
        reason = next(skip.reason for skip in results.skips if skip.task == task)
        notes.append(f"{describe_task(task)}: {count} skipped, too long for an engine ({reason}).")
    return "".join(f'<p class="note">{escape(note)}</p>' for note in notes)


def _draw_tiles(results: Results, figures: Sequence[Figures]) -> str:
    """The best mean speed-up at each temperature, and whether the answers are plain decoding's."""
    tiles = []
    for temperature in dict.fromkeys(f.temperature for f in figures):
        means = [f for f in figures if f.temperature == temperature and f.task == MEAN and not f.is_baseline]
        if means:
            best = max(means, key=lambda f: f.speed_up)
            text = f"{best.tokens_per_second:.0f} tokens/s, {best.accepted_length:.2f} tokens a step"
            tiles.append(
                _tile(f"{best.speed_up:.2f}x", f"{best.configuration}, {describe_temperature(temperature)}", text)
            )
    wrong = len(results.mismatches)
    said = "differ from plain decoding" if wrong else "Token for token plain decoding's"
    compared = results.num_compared
    tiles.append(_tile(f"{compared - wrong} / {compared}", "Equal answers", said, style="bad" if wrong else "good"))
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _tile(value: str, name: str, text: str, style: str = "") -> str:
    return (
        f'<div class="tile {style}"><b>{escape(value)}</b><span class="name">{escape(name)}</span>'
        f"<span>{escape(text)}</span></div>"
    )


def _draw_speed_ups(figures: Sequence[Figures], colours: Mapping[str, int]) -> str:
    most = max((f.speed_up for f in figures), default=1.0)
    cards = [
        _card(_title(temperature), draw_speed_ups([f for f in figures if f.temperature == temperature], colours, most))
        for temperature in dict.fromkeys(f.temperature for f in figures)
    ]
    text = (
        "Tokens a second of whole answers, prompts included, over plain decoding of the same questions (dashed line)."
    )
    return _section("Speed-up by task", text, _legend(colours), cards)


def _draw_details(results: Results, figures: Sequence[Figures], colours: Mapping[str, int]) -> str:
    temperatures = list(dict.fromkeys(f.temperature for f in figures))
    by_temperature = [(t, [f for f in figures if f.temperature == t]) for t in temperatures]
    accepted = [_card(_title(t), plot) for t, here in by_temperature if (plot := draw_accepted(here, colours))]
    times = [_card(_title(t), draw_step_times(here)) for t, here in by_temperature]
    recall = draw_recall(results.entries, colours)
    parts = []
    if accepted:
        text = (
            "Share of target steps that accepted at least so many drafted tokens. The sum of a line's points, plus the "
            "token that every step gives, is the accepted length."
        )
        parts.append(_section("Accepted length by draft position", text, _legend(colours), accepted))
    styles = {"draft": "draft", "verify": "verify", "other": "other"}
    text = "A target step with its draft: drafting, verifying in the target, and everything else."
    parts.append(_section("Where a step's time goes", text, _list_colours(styles), times))
    if recall:
        text = "Share of the target's most probable tokens among the k that the ranking would give exact logits."
        ranked = {entry.name: colours[entry.name] for entry in find_ranked(results.entries)}
        parts.append(_section("Recall of the ranking against k", text, _legend(ranked), [_card("", recall)]))
    return "".join(parts)


def _draw_tables(results: Results) -> str:
    """The means, which all fit on a screen; the tasks folded below them; the configurations."""
    compared = results.compared
    temperatures = dict.fromkeys(c.figures.temperature for c in compared)
    by_temperature = [[c for c in compared if c.figures.temperature == t] for t in temperatures]
    text = (
        "Milliseconds are a target step's. Mean of tasks: each task counts the same, Chinese, Arabic and long contexts "
        "left out; all questions: each token counts the same, over the same tasks. Of greedy: the speed-up beside the "
        "same configuration's at temperature 0. Of full: beside the first configuration whose draft has a full head."
    )
    parts = [*map(_draw_means, by_temperature), *map(_draw_tasks, by_temperature), _draw_engines(results)]
    return f'<section><h2>All figures</h2><p class="soft">{escape(text)}</p>{"".join(parts)}</section>'


def _draw_means(compared: Sequence[Compared]) -> str:
    rows = [_speed_row(c, c.figures.configuration) for c in compared if c.figures.task == MEAN]
    title = f"Mean of tasks, {describe_temperature(compared[0].figures.temperature)}"
    return _table_card(title, _speed_head("configuration"), rows)


def _draw_tasks(compared: Sequence[Compared]) -> str:
    rows = []
    for name in dict.fromkeys(c.figures.configuration for c in compared):
        rows.append(f'<tr class="head"><td colspan="{len(SPEED_HEAD)}">{escape(name)}</td></tr>')
        rows += [_speed_row(c, describe_task(c.figures.task)) for c in compared if c.figures.configuration == name]
    title = f"Every task, {describe_temperature(compared[0].figures.temperature)}"
    return (
        f'<details class="card scroll"><summary>{escape(title)}</summary>{_table(_speed_head("task"), rows)}</details>'
    )


def _draw_engines(results: Results) -> str:
    """Heads and memory, and what a step of the draft takes by itself."""
    shares = share_steps(results.draft_steps, results.entries)
    texts = "".join(f'<th class="text">{escape(text)}</th>' for text in ENGINE_HEAD)
    numbers = "".join(f"<th>{escape(text)}</th>" for text in STEP_HEAD)
    rows = []
    for entry in results.entries:
        cells = "".join(f'<td class="text">{escape(cell)}</td>' for cell in engine_cells(entry))
        cells += "".join(f"<td>{escape(cell)}</td>" for cell in step_cells(entry.name, results.draft_steps, shares))
        rows.append(f"<tr>{cells}</tr>")
    return _table_card("Drafts", texts + numbers, rows)


def _speed_head(first: str) -> str:
    return "".join(f"<th>{escape(text)}</th>" for text in (first, *SPEED_HEAD[1:]))


def _speed_row(compared: Compared, name: str) -> str:
    f = compared.figures
    *cells, mismatches = [f"<td>{escape(cell)}</td>" for cell in (name, *speed_cells(compared)[1:])]
    if f.num_mismatches:
        mismatches = mismatches.replace("<td>", '<td class="bad">')
    style = ' class="sum"' if f.task in (MEAN, OVERALL) and name != f.configuration else ""
    return f"<tr{style}>{''.join(cells)}{mismatches}</tr>"


def _draw_facts(results: Results) -> str:
    plan = results.plan
    asked = {
        "questions": ", ".join(path.name for path in (*plan.questions, *plan.prompts)) or "our own",
        "most tokens of an answer": f"{plan.max_tokens:,}",
        "temperatures": ", ".join(f"{value:g}" for value in plan.temperatures),
        "seeds": f"from {plan.seed}, one a question",
    }
    items = "".join(
        f"<dt>{escape(name.capitalize())}</dt><dd>{escape(value)}</dd>"
        for name, value in {**results.machine, **asked}.items()
    )
    card = f'<div class="card"><dl>{items}</dl></div>'
    return f'<section><h2>Machine and settings</h2><div class="pair">{card}</div></section>'


def _section(title: str, text: str, legend: str, cards: Sequence[str]) -> str:
    return (
        f'<section><h2>{escape(title)}</h2><p class="soft">{escape(text)}</p>{legend}'
        f'<div class="pair">{"".join(cards)}</div></section>'
    )


def _card(title: str, content: str) -> str:
    head = f"<h3>{escape(title)}</h3>" if title else ""
    return f'<div class="card">{head}{content}</div>'


def _table_card(title: str, head: str, rows: Sequence[str]) -> str:
    return f'<div class="card scroll"><h3>{escape(title)}</h3>{_table(head, rows)}</div>'


def _table(head: str, rows: Sequence[str]) -> str:
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _legend(colours: Mapping[str, int]) -> str:
    return _list_colours({name: series_style(number) for name, number in colours.items()})


def _list_colours(styles: Mapping[str, str]) -> str:
    items = "".join(f'<li><i class="{style}"></i>{escape(name)}</li>' for name, style in styles.items())
    return f'<ul class="legend">{items}</ul>'


def _title(temperature: float) -> str:
    text = describe_temperature(temperature)
    return text[0].upper() + text[1:]
