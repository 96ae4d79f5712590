"""What the GPU benchmarks share: their options, and the table that they print and write."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from draftsmith.plugins.kernel_library import LIBRARY_VARIABLE


def make_parser(text: str) -> argparse.ArgumentParser:
    """Options that every GPU benchmark has; ``text``: what its help says."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--library", type=Path, default=os.environ.get(LIBRARY_VARIABLE), help="the kernels' shared library"
    )
    parser.add_argument("--output", type=Path, help="also write the table to this file")
    parser.add_argument("--replays", type=int, default=31, help="of each graph of ours")
    return parser


def read_options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line; ``library`` is a path."""
    given = parser.parse_args()
    if given.library is None:
        parser.error(f"--library or {LIBRARY_VARIABLE}: expected the file that `build-engine plugins build` made")
    given.library = Path(given.library)
    return given


def row(cells: Sequence[str]) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def write(lines: Sequence[str], output: Path | None) -> None:
    """To a file, where one was asked for."""
    if output is not None:
        output.write_text("\n".join(lines) + "\n", encoding="utf-8")
