"""Options that are numbers: whether one lies where it may."""

from .errors import UsageError


def check_range(name: str, value: int | None, low: int, high: int) -> None:
    """Raise ``UsageError`` unless low <= value <= high; None, an option that was not given, passes."""
    if value is not None and not low <= value <= high:
        raise UsageError(name, expected=f"a number from {low:,} to {high:,}", found=f"{value:,}")
