"""What is measured: a row a question and configuration, and the CSV file that holds them."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..errors import UsageError

_LIST_FIELD = "accepted_counts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One question under one configuration at one temperature, its turns added up.

    ``baseline``: the configuration of plain decoding that it is compared with (its own name for a baseline).
    ``num_tokens`` came in ``seconds``; behind the first token of each turn ``num_decoded`` came in ``decode_seconds``,
    in ``num_steps`` target steps, whose parts are ``draft_ms``, ``verify_ms`` and ``other_ms``. ``accepted_counts[a]``:
    steps that accepted ``a`` drafted tokens. ``first_difference``: position (over all turns) of the first token that
    differs from the baseline's, -1 for none.
    """

    task: str
    category: str
    question_id: str
    configuration: str
    baseline: str
    temperature: float
    seed: int
    num_turns: int
    num_prompt_tokens: int
    num_tokens: int
    seconds: float
    num_decoded: int
    decode_seconds: float
    num_steps: int
    num_drafted: int
    num_accepted: int
    draft_ms: float
    verify_ms: float
    other_ms: float
    first_difference: int
    accepted_counts: tuple[int, ...]

    @property
    def matches(self) -> bool:
        """True where the tokens are plain decoding's."""
        return self.first_difference < 0

    @property
    def is_baseline(self) -> bool:
        """True for plain decoding itself."""
        return self.configuration == self.baseline


FIELD_NAMES = tuple(field.name for field in fields(Row))


class RowFile:
    """Rows appended to a CSV file; what is in it after an interruption is whole questions."""

    def __init__(self, path: Path, kept: Sequence[Row] = ()) -> None:
        """Writes the file anew, with the rows that were ``kept`` of an earlier run."""
        self._file = path.open("w", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file)
        self._writer.writerow(FIELD_NAMES)
        self.add(kept)

    def add(self, rows: Iterable[Row]) -> None:
        """Write rows, and see that they are in the file."""
        self._writer.writerows([[_to_cell(getattr(row, name)) for name in FIELD_NAMES] for row in rows])
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_rows(path: Path) -> list[Row]:
    """The rows of a file that ``RowFile`` wrote; a last line that was cut off is left out.

    Raises:
        UsageError: it is no such file.
    """
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    if not lines or tuple(lines[0]) != FIELD_NAMES:
        found = ", ".join(lines[0])[:60] if lines else "an empty file"
        raise UsageError("--resume", expected="rows of this version of draftsmith", found=found, where=str(path))
    if lines and len(lines[-1]) != len(FIELD_NAMES):
        lines.pop()
    try:
        return [Row(**_from_cells(line)) for line in lines[1:]]
    except (ValueError, TypeError) as error:
        raise UsageError("--resume", expected="rows as they were written", found=str(error), where=str(path)) from error


def _to_cell(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.6g}" if value else "0"
    return str(value)


def _from_cells(cells: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field, cell in zip(fields(Row), cells, strict=True):
        if field.name == _LIST_FIELD:
            values[field.name] = tuple(int(part) for part in cell.split())
        else:
            values[field.name] = field.type(cell)  # type: ignore[operator]  # str, int or float: no annotations future
    return values
