"""The root of every error draftsmith raises, and the codes that cross the wire.

::

    DraftsmithError
    ├── RequestError            a request that cannot be served (code: invalid_request, ...)
    ├── ManifestError           engine.json or a file it names is not what it says
    ├── builder.errors.*        checkpoint, backend, build
    └── client.errors.*         what the client raises

Triton loses the gRPC status of an error inside a stream and keeps the message alone, so a served error's message starts
with its code in brackets: ``[invalid_request] temperature: expected ...``.
"""

from enum import StrEnum


class ErrorCode(StrEnum):
    """Why a request failed; the client maps each to an exception class."""

    INVALID_REQUEST = "invalid_request"
    TOO_LONG = "too_long"
    OVERLOADED = "overloaded"
    CANCELLED = "cancelled"
    UNHEALTHY = "unhealthy"
    INTERNAL = "internal"


class DraftsmithError(Exception):
    """``<subject>: expected <X>, found <Y> (<where>). <What to do>.`` with the same facts as attributes."""

    def __init__(self, subject: str, *, expected: str = "", found: str = "", where: str = "", action: str = "") -> None:
        self.subject = subject
        self.expected = expected
        self.found = found
        self.where = where
        self.action = action
        super().__init__(self._text())

    def _text(self) -> str:
        facts = [f"expected {self.expected}"] if self.expected else []
        facts += [f"found {self.found}"] if self.found else []
        text = self.subject + (f": {', '.join(facts)}" if facts else "")
        text += f" ({self.where})" if self.where else ""
        if self.action:
            text += f". {self.action}"
        return text if text.endswith((".", "`", "?")) else text + "."


class RequestError(DraftsmithError):
    """One request cannot be served; others are not touched.

    ``code`` says why; ``wire_text`` is what travels as a Triton error message.
    """

    def __init__(  # the facts of the message, and the code
        self,
        subject: str,
        *,
        code: ErrorCode = ErrorCode.INVALID_REQUEST,
        expected: str = "",
        found: str = "",
        where: str = "",
        action: str = "",
    ) -> None:
        self.code = code
        super().__init__(subject, expected=expected, found=found, where=where, action=action)

    @property
    def wire_text(self) -> str:
        """``[code] message``."""
        return f"[{self.code.value}] {self}"


class ManifestError(DraftsmithError):
    """engine.json, or a file that it names, is not what it says."""


def parse_wire_text(text: str) -> tuple[ErrorCode, str]:
    """Split ``[code] message``; a text without a known code is ``INTERNAL`` and kept whole.

    Triton may put its own words before ours, so the code is looked for anywhere in the text.
    """
    for code in ErrorCode:
        mark = f"[{code.value}] "
        at = text.find(mark)
        if at >= 0:
            return code, text[at + len(mark) :]
    return ErrorCode.INTERNAL, text
