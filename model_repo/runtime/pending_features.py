"""The target's features that a draft model has not read yet, of one slot."""

import numpy as np

from .sessions.base import FloatArray

_FIRST_ROWS = 64


class PendingFeatures:
    """Rows float32 [F] of positions ``start`` to ``end`` - 1; the latest ``most`` are kept where that is not 0."""

    def __init__(self, size: int, most: int = 0) -> None:
        self._size = size
        self._most = most
        self._rows: FloatArray = np.empty((0, size), np.float32)
        self.start = 0
        self.end = 0

    def clear(self) -> None:
        """Forget everything; the next rows begin at position 0."""
        self.start = self.end = 0

    def append(self, position: int, rows: FloatArray) -> None:
        """Rows [n, F] of positions from ``position`` on, which follow those that are here; copied."""
        if position != self.end:
            raise ValueError(f"features: expected those of position {self.end}, found {position}")
        count = len(rows)
        if self._most and count > self._most:
            self.start = self.end = position + count - self._most
            rows = rows[-self._most :]
        held = self.end - self.start
        self._reserve(held + len(rows))
        self._rows[held : held + len(rows)] = rows
        self.end += len(rows)
        if self._most:
            self.drop(self.end - self._most)

    def rows(self, start: int, end: int) -> FloatArray:
        """A view of positions ``start`` to ``end`` - 1."""
        return self._rows[start - self.start : end - self.start]

    def drop(self, position: int) -> None:
        """Forget positions before ``position``."""
        if position <= self.start:
            return
        kept = self.end - position
        self._rows[:kept] = self._rows[position - self.start : self.end - self.start].copy()
        self.start = position

    def _reserve(self, count: int) -> None:
        if count > len(self._rows):
            grown = np.empty((max(_FIRST_ROWS, 2 * len(self._rows), count), self._size), np.float32)
            held = self.end - self.start
            grown[:held] = self._rows[:held]
            self._rows = grown
