"""What is wrong with a list of target ids, one a row: the first that is out of range or double."""

from typing import Any

import numpy as np
import numpy.typing as npt


def find_id_fault(ids: npt.NDArray[np.integer[Any]], vocab_size: int) -> tuple[str, str] | None:
    """What was expected and found of the first wrong id of ``ids`` [N], None where all are right."""
    outside = np.flatnonzero((ids < 0) | (ids >= vocab_size))
    if len(outside):
        row = int(outside[0])
        return f"target ids from 0 to {vocab_size - 1}", f"{ids[row]} at row {row}"
    order = np.argsort(ids, kind="stable")
    double = np.flatnonzero(np.diff(ids[order]) == 0)
    if len(double):
        first, second = sorted((int(order[double[0]]), int(order[double[0] + 1])))
        return "each target id once", f"{ids[first]} at rows {first} and {second}"
    return None
