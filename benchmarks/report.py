"""What every benchmark prints: where and when it ran, and a table.

Interleaves what is compared, so that a slow phase of the machine hits all variants alike.
"""

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

PACKAGES = ("draftsmith", "onnxruntime", "numpy")
PAUSE_SECONDS = 0.2
"""Between two variants: until the threads of the one before have stopped spinning."""
Row = Sequence[str]


def print_header(title: str, *, versions: Mapping[str, str] | None = None) -> None:
    """Title, date, machine and versions, as Markdown."""
    found = {name: _version(name) for name in PACKAGES} | dict(versions or {})
    print(f"## {title}\n")
    print(f"- date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    print(f"- machine: {cpu_name()}, {len(os.sched_getaffinity(0))} cores, {memory_gib():.0f} GiB, {platform.system()}")
    print(f"- load average before: {os.getloadavg()[0]:.1f}")
    print(f"- versions: Python {platform.python_version()}, " + ", ".join(f"{k} {v}" for k, v in found.items()))
    print(f"- command: `{' '.join(['python', *sys.argv])}`\n", flush=True)


def print_table(head: Row, rows: Sequence[Row]) -> None:
    """A Markdown table; the first column is text, the others are numbers."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    print(_line(head, widths))
    print("| " + " | ".join("-" * w if i == 0 else "-" * (w - 1) + ":" for i, w in enumerate(widths)) + " |")
    for row in rows:
        print(_line(row, widths))
    print(flush=True)


def interleave(variants: Mapping[str, Callable[[], float]], *, rounds: int) -> dict[str, list[float]]:
    """Run every variant once a round, in an order that turns by one each round; the figures each gave."""
    names = list(variants)
    figures: dict[str, list[float]] = {name: [] for name in names}
    for index in range(rounds):
        turn = index % len(names)
        for name in names[turn:] + names[:turn]:
            time.sleep(PAUSE_SECONDS)
            figures[name].append(variants[name]())
        print(f"round {index + 1} of {rounds} done", file=sys.stderr)
    return figures


def spread(values: Sequence[float], digits: int = 1) -> str:
    """``median (least to most)``."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def paired_ratio(values: Sequence[float], base: Sequence[float]) -> float:
    """Median over rounds of value / base of the same round."""
    return statistics.median(v / b for v, b in zip(values, base, strict=True))


def cpu_name() -> str:
    """The processor's model name with what matters of its instruction set."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    facts = dict(line.split(":", 1) for line in text.split("\n\n")[0].splitlines() if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    flags = facts.get("flags", "").split()
    wide = [name for name in ("avx2", "avx512f", "avx512_vnni", "amx_int8") if name in flags]
    return f"{facts.get('model name', platform.machine())} ({', '.join(wide)})"


def memory_gib() -> float:
    """Installed memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _line(row: Row, widths: Sequence[int]) -> str:
    cells = [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
    return "| " + " | ".join(cells) + " |"
