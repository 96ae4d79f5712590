"""The report's plots: speed-up by task, accepted length by draft position, time of a step, recall against k."""

from collections.abc import Mapping, Sequence

from .lineup import Entry
from .plots import Bar, BarGroup, Part, Series, draw_bars, draw_lines, series_style
from .summary import MEAN, OVERALL, Figures
from .table import describe_task

_MOST_POSITIONS = 12
_MOST_TICKS = 7
_LEAST_SHARE = 0.005


def colour_entries(entries: Sequence[Entry]) -> dict[str, int]:
    """A colour's number for each configuration; baselines have none."""
    return {entry.name: number for number, entry in enumerate(entry for entry in entries if not entry.is_baseline)}


def draw_speed_ups(figures: Sequence[Figures], colours: Mapping[str, int], most: float) -> str:
    """A group of bars a task, the mean first; a line where plain decoding is. ``most``: the scale's longest bar."""
    shown = [f for f in figures if f.configuration in colours and f.task != OVERALL]
    tasks = [MEAN, *(task for task in dict.fromkeys(f.task for f in shown) if task != MEAN)]
    groups = [
        BarGroup(title=describe_task(task), bars=tuple(_speed_bar(f, colours) for f in shown if f.task == task))
        for task in tasks
    ]
    return draw_bars(groups, title="Speed-up over plain decoding by task", mark=1.0, unit="x", most=most)


def draw_accepted(figures: Sequence[Figures], colours: Mapping[str, int]) -> str:
    """Share of target steps that accepted at least so many drafted tokens; empty where nothing was drafted."""
    lines = []
    for f in (f for f in figures if f.task == OVERALL and f.configuration in colours):
        reached = [share for share in f.reached[: _MOST_POSITIONS + 1] if share >= _LEAST_SHARE]
        if len(reached) > 1:
            points = tuple((float(index), share) for index, share in enumerate(reached) if index)
            lines.append(Series(name=f.configuration, colour=colours[f.configuration], points=points))
    if not lines:
        return ""
    last = int(max(line.points[-1][0] for line in lines))
    ticks = [(float(index), str(index)) for index in range(1, max(last, 2) + 1)]
    return draw_lines(lines, title="Accepted drafts by position", x_title="position in the draft", x_ticks=ticks)


def draw_step_times(figures: Sequence[Figures]) -> str:
    """What a target step's milliseconds are spent on, over all questions; a bar a configuration."""
    bars = []
    for f in (f for f in figures if f.task == OVERALL):
        parts = (("draft", f.draft_ms), ("verify", f.verify_ms), ("other", f.other_ms))
        bars.append(
            BarGroup(
                title=f.configuration,
                bars=(
                    Bar(
                        name=f.configuration,
                        parts=tuple(Part(name=name, value=value, style=name) for name, value in parts),
                        label=f"{f.step_ms:.1f} ms, {f.accepted_length:.2f} tokens",
                    ),
                ),
            )
        )
    return draw_bars(bars, title="Milliseconds of a target step", unit=" ms", label_share=0.6)


def draw_recall(entries: Sequence[Entry], colours: Mapping[str, int]) -> str:
    """Share of most probable tokens among the k best ranked, by k; empty where no build measured it at several k."""
    known = find_ranked(entries)
    recalls = {entry.name: {k: r for k, r in entry.facts.recall.items() if k > 1} for entry in known}
    sizes = sorted({k for recall in recalls.values() for k in recall})
    if len(sizes) < 2:
        return ""
    at = {k: float(index) for index, k in enumerate(sizes)}  # k doubles from one to the next, so steps are even
    lines = [
        Series(
            name=entry.name,
            colour=colours[entry.name],
            points=tuple((at[k], value) for k, value in recalls[entry.name].items()),
        )
        for entry in known
    ]
    lowest = min(value for recall in recalls.values() for value in recall.values())
    every = -(-len(sizes) // _MOST_TICKS)
    ticks = [(at[k], f"{k:,}") for index, k in enumerate(sizes) if index % every == 0 or k == sizes[-1]]
    return draw_lines(
        lines, title="Recall of the ranking", x_title="candidates k", x_ticks=ticks, least=find_least(lowest)
    )


def find_ranked(entries: Sequence[Entry]) -> list[Entry]:
    """The configurations whose rankings were measured at several k, one an engine."""
    found: dict[str, Entry] = {}
    for entry in entries:
        facts = entry.facts
        if entry.uses_model and len(facts.recall) > 1 and not facts.has_scores_alone:
            found.setdefault(str(entry.facts.folder), entry)
    return list(found.values())


def find_least(lowest: float) -> float:
    """Where an axis of shares begins: high values all close together would be a flat line otherwise."""
    return next((least for least in (0.9, 0.8, 0.6) if lowest >= least), 0.0)


def _speed_bar(f: Figures, colours: Mapping[str, int]) -> Bar:
    style = series_style(colours[f.configuration])
    label = f"{f.speed_up:.2f}x"
    return Bar(name=f.configuration, parts=(Part(name="", value=f.speed_up, style=style),), label=label)
