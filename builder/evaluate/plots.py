"""SVG that fits any width: what lies along x is given in percent, so text and strokes keep their size on a phone.

Colours are CSS classes (``s0`` to ``s7`` for series, see style.py), so that light and dark pages share one drawing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

NUM_COLOURS = 8
_ROW, _GAP, _TITLE = 18, 12, 20
_PLOT_HEIGHT = 220
_LEFT = 11
_LABEL_SHARE = 0.86


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line: points (x, y) with a name and a colour's number."""

    name: str
    colour: int
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a bar."""

    name: str
    value: float
    style: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Pieces side by side, with the text behind them."""

    name: str
    parts: tuple[Part, ...]
    label: str

    @property
    def length(self) -> float:
        """All pieces together."""
        return sum(part.value for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BarGroup:
    """Bars under a title."""

    title: str
    bars: tuple[Bar, ...]


def series_style(number: int) -> str:
    """The CSS class of a series; beyond the palette colours come again."""
    return f"s{number % NUM_COLOURS}"


def draw_bars(
    groups: Sequence[BarGroup],
    *,
    title: str,
    mark: float | None = None,
    unit: str = "",
    most: float | None = None,
    label_share: float = _LABEL_SHARE,
) -> str:
    """Horizontal bars from 0; ``mark`` is a line across them all (plain decoding's 1x).

    ``most``: the scale's longest bar, where several plots share a scale; ``label_share``: part of the width it takes.
    """
    longest = max(most or longest_bar(groups), mark or 0.0)
    ticks = find_ticks(longest)
    scale = 100.0 * label_share / (longest or 1.0)
    pieces: list[str] = []
    texts: list[str] = []  # above the mark
    top = 0
    for group in groups:
        if group.title:
            texts.append(f'<text class="group" x="0" y="{top + 13}">{escape(group.title)}</text>')
            top += _TITLE
        for bar in group.bars:
            pieces.append(_draw_bar(bar, top, scale, unit))
            end = bar.length * scale
            texts.append(f'<text class="value" x="{end:.3f}%" dx="6" y="{top + 13}">{escape(bar.label)}</text>')
            top += _ROW
        top += _GAP
    height = top - _GAP + 20 if groups else 20
    grid = [_vertical(tick * scale, height - 18, "grid") for tick in ticks]
    axis = [_tick_text(tick * scale, height - 3, f"{tick:g}{unit}") for tick in ticks]
    marked = [_vertical(mark * scale, height - 18, "mark")] if mark is not None else []
    return _svg([*grid, *pieces, *marked, *texts, *axis], height, title)


def longest_bar(groups: Sequence[BarGroup]) -> float:
    """Length of the longest bar, 0 without any."""
    return max((bar.length for group in groups for bar in group.bars), default=0.0)


def draw_lines(
    series: Sequence[Series], *, title: str, x_title: str, x_ticks: Sequence[tuple[float, str]], least: float = 0.0
) -> str:
    """Lines over x from the first to the last of ``x_ticks``; y is a share from ``least`` to 1."""
    low, high = x_ticks[0][0], x_ticks[-1][0]
    right, top, bottom = 97.0, 10, _PLOT_HEIGHT - 40

    def place(x: float) -> float:
        return 1.5 + (right - 1.5) * (x - low) / ((high - low) or 1.0)

    def level(y: float) -> float:
        return bottom - (bottom - top) * (y - least) / (1.0 - least)

    pieces = []
    for share in (least + part * (1.0 - least) / 4 for part in range(5)):
        y = level(share)
        pieces.append(f'<line class="grid" x1="{_LEFT}%" x2="100%" y1="{y:g}" y2="{y:g}"/>')
        pieces.append(
            f'<text class="tick" x="{_LEFT}%" dx="-8" y="{y + 4:g}" text-anchor="end">{100 * share:.3g}%</text>'
        )
    inner = [_tick_text(place(x), bottom + 18, text) for x, text in x_ticks]
    inner += [_draw_line(line, [(place(x), level(y)) for x, y in line.points], bottom) for line in series]
    pieces.append(f'<svg class="inner" x="{_LEFT}%" width="{100 - _LEFT}%" height="{_PLOT_HEIGHT}">')
    pieces += [*inner, "</svg>"]
    pieces.append(f'<text class="axis" x="50%" y="{_PLOT_HEIGHT - 4}" text-anchor="middle">{escape(x_title)}</text>')
    return _svg(pieces, _PLOT_HEIGHT, title)


def find_ticks(most: float) -> list[float]:
    """0 and round steps (1, 2, 2.5 or 5 times a power of ten) up to ``most``: about four."""
    if most <= 0:
        return [0.0]
    power = 1.0
    while power * 10 <= most:
        power *= 10
    while power > most:
        power /= 10
    sizes = sorted(power * part for part in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0))
    step = next((size for size in sizes if most / size <= 5.0), sizes[-1])
    return [round(step * index, 10) for index in range(int(most / step + 1e-9) + 1)]


def _draw_bar(bar: Bar, top: int, scale: float, unit: str) -> str:
    pieces, start = [], 0.0
    for part in bar.parts:
        width = part.value * scale
        hint = escape(f"{bar.name}, {part.name}: {part.value:.2f}{unit}" if part.name else f"{bar.name}: {bar.label}")
        pieces.append(
            f'<rect class="{part.style}" x="{start:.3f}%" y="{top + 2}" width="{width:.3f}%" height="{_ROW - 5}"'
            f' rx="2"><title>{hint}</title></rect>'
        )
        start += width
    return "".join(pieces)


def _draw_line(series: Series, places: Sequence[tuple[float, float]], bottom: float) -> str:
    """The line is stretched with the page, its dots are not."""
    style = series_style(series.colour)
    points = " ".join(f"{x:.3f},{y:.2f}" for x, y in places)
    pieces = [
        f'<svg width="100%" height="{bottom + 4:g}" viewBox="0 0 100 {bottom + 4:g}" preserveAspectRatio="none">'
        f'<polyline class="line {style}" points="{points}" vector-effect="non-scaling-stroke"/></svg>'
    ]
    for (x, y), (at, value) in zip(places, series.points, strict=True):
        hint = escape(f"{series.name}, {at:g}: {value:.1%}")
        pieces.append(f'<circle class="dot {style}" cx="{x:.3f}%" cy="{y:.2f}" r="3.5"><title>{hint}</title></circle>')
    return "".join(pieces)


def _vertical(x: float, height: float, style: str) -> str:
    return f'<line class="{style}" x1="{x:.3f}%" x2="{x:.3f}%" y1="0" y2="{height:g}"/>'


def _tick_text(x: float, y: float, text: str) -> str:
    anchor = "start" if x < 1 else "middle"
    return f'<text class="tick" x="{x:.3f}%" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(pieces: Sequence[str], height: float, title: str) -> str:
    return (
        f'<svg class="plot" role="img" aria-label="{escape(title)}" width="100%" height="{height:g}">'
        f"{''.join(pieces)}</svg>"
    )
