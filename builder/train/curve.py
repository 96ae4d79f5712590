"""The loss curve of a run as a self-contained SVG, from its CSV."""

import csv
from pathlib import Path

WIDTH, HEIGHT, MARGIN = 720, 300, 44
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f")


def write_curve(source: Path, destination: Path) -> None:
    """Two panels over training time: the loss, and how often draft and target agree in each step."""
    with source.open(newline="") as file:
        rows = list(csv.DictReader(file))
    seconds = [float(row["seconds"]) for row in rows]
    names = [name for name in (rows[0] if rows else {}) if name.startswith("agreed_")]
    panels = [
        _panel("loss", seconds, {"loss": [float(row["loss"]) for row in rows]}, 0),
        _panel("agreement", seconds, {name: [float(row[name]) for row in rows] for name in names}, HEIGHT),
    ]
    size = f'width="{WIDTH}" height="{2 * HEIGHT}" viewBox="0 0 {WIDTH} {2 * HEIGHT}"'
    style = 'font-family="sans-serif" font-size="11"'
    text = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n' + "\n".join(panels) + "\n</svg>\n"
    destination.write_text(text, encoding="utf-8")


def _panel(title: str, seconds: list[float], lines: dict[str, list[float]], top: int) -> str:
    """One panel with its axes' ends written out."""
    values = [value for line in lines.values() for value in line]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    end = max(seconds, default=0.0) or 1.0
    span = (high - low) or 1.0

    def place(x: float, y: float) -> str:
        across = MARGIN + x / end * (WIDTH - 2 * MARGIN)
        down = top + HEIGHT - MARGIN - (y - low) / span * (HEIGHT - 2 * MARGIN)
        return f"{across:.1f},{down:.1f}"

    parts = [
        f'<rect x="{MARGIN}" y="{top + MARGIN}" width="{WIDTH - 2 * MARGIN}" height="{HEIGHT - 2 * MARGIN}" '
        'fill="none" stroke="#999"/>',
        f'<text x="{MARGIN}" y="{top + MARGIN - 8}">{title}: {low:.3g} to {high:.3g}, 0 to {end:.0f} s</text>',
    ]
    for index, (name, line) in enumerate(lines.items()):
        points = " ".join(place(x, y) for x, y in zip(seconds, line, strict=True))
        colour = COLOURS[index % len(COLOURS)]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        x = WIDTH - MARGIN - 90 * (len(lines) - index)
        parts.append(f'<text x="{x}" y="{top + HEIGHT - 20}" fill="{colour}">{name}</text>')
    return "\n".join(parts)
