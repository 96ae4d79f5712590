"""What a chat template may spend: loop turns, calls, and the size of what it builds; and what is refused beforehand.

A template comes with a checkpoint and is not trusted. Values that grow by addition are paid for once they are there;
values that a single operation can make huge (multiplied, padded, joined) are refused before they are made.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

_MAX_TURNS = 200_000
_MAX_CHARS = 16_000_000
_MAX_NUMBER = 10_000
_MAX_BITS = 4096
# A width of five digits, a width that is itself an argument.
_WIDE_FORMAT = re.compile(r"\d{5,}|%[^a-zA-Z%]*\*|\{[^{}]*\{")
_PADDING = {"center", "ljust", "rjust", "zfill", "indent", "batch", "slice", "wordwrap", "truncate", "tojson"}
_MULTIPLYING = {"replace", "join", "expandtabs", "indent"}
_FORMATTING = {"format", "format_map"}
_REFUSED = {"translate", "maketrans"}


class TemplateError(Exception):
    """What a template says when it refuses its messages (``raise_exception``), or that its budget is spent."""


class Budget:
    """Loop turns and characters that one rendering may still use."""

    def __init__(self) -> None:
        self._turns = _MAX_TURNS
        self._chars = _MAX_CHARS

    def pay_turn(self) -> None:
        """One loop turn or call."""
        self._turns -= 1
        if self._turns < 0:
            raise TemplateError(f"the template runs too long (more than {_MAX_TURNS:,} loop turns and calls)")

    def pay_value(self, value: object) -> None:
        """A value that was built; its size counts."""
        if isinstance(value, (str, bytes, list, tuple, dict, set)):
            self._chars -= len(value)
            if self._chars < 0:
                raise TemplateError(f"the template writes too much (more than {_MAX_CHARS:,} characters)")


def check_operator(operator: str, left: Any, right: Any) -> None:
    """Refuse ``left operator right`` (``*``, ``**``, ``%``) where its result would be huge."""
    if operator == "*":
        _check_product(left, right)
    elif operator == "**":
        _check_numbers((left, right))
    elif operator == "%":
        _check_format(left)


def check_call(name: str, owner: Any, arguments: Iterable[Any], keywords: Mapping[str, Any]) -> None:
    """Refuse a method of a text, or a filter, whose result would be huge.

    Arguments:
        name: the method's or filter's name. ``owner``: the text, or the filtered value.
    """
    given = [*arguments, *keywords.values()]
    if name in _REFUSED:
        raise TemplateError(f"the template uses {name}, which is not allowed")
    if name in _FORMATTING:
        _check_format(owner)
    if name in _PADDING or name in _MULTIPLYING:
        _check_numbers(given)
    if name in _MULTIPLYING:
        for value in given:
            _check_product(owner, value)


def _check_format(text: Any) -> None:
    if isinstance(text, (str, bytes)):
        text = text if isinstance(text, str) else text.decode("latin-1")
        if _WIDE_FORMAT.search(text):
            raise TemplateError("the template formats with a huge or computed width")


def _check_numbers(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, int) and abs(value) > _MAX_NUMBER:
            raise TemplateError(f"the template uses a number above {_MAX_NUMBER:,} to build a value")


def _check_product(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > _MAX_BITS:
            raise TemplateError("the template multiplies huge numbers")
    elif _size(left) * _size(right) > _MAX_CHARS:
        raise TemplateError("the template multiplies a text or a list to a huge size")


def _size(value: Any) -> int:
    if isinstance(value, int):
        return abs(value)
    return len(value) if isinstance(value, (str, bytes, list, tuple, dict, set)) else 1
