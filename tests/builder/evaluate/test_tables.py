"""What the tables say: Markdown, CSV, JSON."""

import csv
import io

from draftsmith.builder.evaluate.draft_steps import DraftStep
from draftsmith.builder.evaluate.markdown import render_markdown, render_overview
from draftsmith.builder.evaluate.results import Results
from draftsmith.builder.evaluate.table import describe_head, describe_memory, describe_ranking_memory, describe_recall
from draftsmith.builder.evaluate.values import render_csv, to_json

from tests.builder.evaluate.results_cases import make_entry, make_large_results, make_results, make_row

STEPS = {"full": DraftStep(token_ms=2.0, level_ms=4.0), "fast": DraftStep(token_ms=0.5, level_ms=3.0)}


def make_compared() -> Results:
    """Full and speculative, greedy and at temperature 1."""
    entries = (make_entry("plain"), make_entry("full", head="full", ranking_bytes=0, recall={}), make_entry())
    rows = [
        make_row(configuration=name, num_accepted=accepted, seconds=seconds, temperature=temperature)
        for temperature, times in ((0.0, (4.0, 2.0, 1.0)), (1.0, (4.0, 2.0, 1.25)))
        for name, accepted, seconds in zip(("plain", "full", "fast"), (0, 66, 33), times, strict=True)
    ]
    return make_results(rows, entries, draft_steps=STEPS)


def cells_of(text: str, title: str, name: str) -> list[str]:
    part = text.split(f"## {title}\n\n")[1].split("##", maxsplit=1)[0]
    (line,) = [line for line in part.splitlines() if line.startswith(f"| {name} ")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_overview_has_a_line_a_configuration_and_the_shares() -> None:
    text = render_overview(make_compared())
    greedy, sampled = (cells_of(text, f"Mean of tasks, {title}", "fast") for title in ("greedy", "temperature 1"))
    assert greedy[2:9] == ["100.0", "4.00x", "66.0", "1.00x", "-", "2.00", "66.7%"]
    assert sampled[2:7] == ["80.0", "3.20x", "66.0", "1.00x", "80.0%"]
    assert cells_of(text, "Drafts", "fast")[-4:] == ["0.50", "25.0%", "3.00", "75.0%"]
    assert cells_of(text, "Drafts", "plain")[-4:] == ["-"] * 4


def test_every_task_is_a_column_and_the_mean_the_first() -> None:
    text = render_overview(make_large_results())
    head = text.split("## Speed-up by task, greedy\n\n")[1].splitlines()[0]
    names = [cell.strip() for cell in head.strip("|").split("|")]
    assert names[:3] == ["configuration", "Mean of tasks", "Multi-turn chat"]
    assert names[-2:] == ["Chinese", "Arabic"]
    assert len(cells_of(text, "Accepted length, temperature 1", "full")) == len(names)


def test_every_configuration_and_task_has_a_line_at_every_temperature() -> None:
    text = render_markdown(make_large_results())
    lines = [line for line in text.split("## Every task, greedy")[1].splitlines() if line.startswith("| speculative ")]
    assert len(lines) == 2 * (8 + 2)
    assert {len(line) for line in lines[:10]} == {len(lines[0])}
    cells = cells_of(text, "Drafts", "speculative")
    assert cells[4:7] == ["98.4% (k = 2,048)", "7.0 MB (5.0%) + 4.0 MB a slot", "3.5 MB (2.5%)"]


def test_recall_and_memory_belong_to_a_draft_that_is_used() -> None:
    ngram = make_entry("n", "draft=ngram")
    assert (describe_recall(ngram.configuration, ngram.facts), describe_memory(ngram)) == ("-", "none")
    assert (describe_head(ngram), describe_ranking_memory(ngram)) == ("-", "none")
    other = make_entry("o", "k=900")
    assert describe_recall(other.configuration, other.facts) == "97.1% (k = 1,024)"


def test_a_ranking_alone_is_judged_by_its_first_choice() -> None:
    alone = make_entry("a", recall={1: 0.8, 2048: 0.99}, recall_k=1, has_scores_alone=True)
    assert describe_head(alone) == "scores alone"
    assert describe_recall(alone.configuration, alone.facts) == "80.0% (k = 1)"


def test_the_csv_has_a_line_for_every_figure_with_the_drafts_facts() -> None:
    lines = list(csv.DictReader(io.StringIO(render_csv(make_compared()))))
    assert len(lines) == 2 * 3 * 3
    fast = next(
        line for line in lines if (line["configuration"], line["task"], line["temperature"]) == ("fast", "qa", "1")
    )
    assert (fast["greedy_share"], fast["accepted_share"], fast["recall_at_k"]) == ("0.8", "0.666667", "0.984")
    assert (fast["draft_step_share"], fast["ranking_bytes"], fast["num_mismatches"]) == ("0.25", "3500000", "0")
    plain = next(line for line in lines if line["configuration"] == "plain")
    assert (plain["draft_bytes"], plain["draft_step_ms"], plain["accepted_share"]) == ("0", "", "")


def test_json_has_the_figures_and_the_engines() -> None:
    results = make_large_results()
    values = to_json(results)
    assert len(values["figures"]) == len(results.figures)
    assert values["configurations"][4]["recall"]["2048"] == 0.984
