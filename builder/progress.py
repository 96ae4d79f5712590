"""How long work reports itself: a protocol, and the reporter that says nothing."""

from types import TracebackType
from typing import Protocol, Self


class Stage(Protocol):
    """One running piece of work, used as a context manager; leaving it ends the stage."""

    def advance(self, amount: float = 1.0) -> None:
        """``amount`` more of the stage's total is done."""

    def note(self, text: str) -> None:
        """What the stage found out, for its finished line (sizes and figures with units)."""

    def __enter__(self) -> Self:
        """Start."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, well or badly."""


class Progress(Protocol):
    """Opens stages; the command line draws them, tests and libraries pass ``Silent()``."""

    def stage(self, title: str, *, total: float | None = None, unit: str = "") -> Stage:
        """A new stage; ``total`` in ``unit`` ("bytes" is shown as MB), None where it is unknown."""


class SilentStage:
    """Reports nothing."""

    def advance(self, amount: float = 1.0) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing."""


class Silent:
    """A ``Progress`` that reports nothing."""

    def stage(self, title: str, *, total: float | None = None, unit: str = "") -> Stage:  # noqa: ARG002
        """A silent stage."""
        return SilentStage()
