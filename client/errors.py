"""What the client raises, and how a server's answer becomes one of these.

::

    ClientError
    ├── ServerUnavailable   the server cannot be reached, went away, or is unhealthy
    ├── DeadlineExceeded    the timeout passed first
    ├── InvalidRequest      an option or the prompt is wrong (found before sending, or by the server)
    │   └── TooLong         prompt and max_tokens do not fit the model's context
    ├── Overloaded          the server's queue is full
    ├── Cancelled           the request was cancelled by somebody else than its caller
    ├── ModelNotFound       no such model, or it is not ready
    ├── ServerError         the server failed at this request
    └── ProtocolError       the answer is not what the protocol says

``ClientError`` is a ``DraftsmithError``: ``subject``, ``expected``, ``found``, ``where`` and ``action`` are attributes.
"""

import grpc
from draftsmith.model_repo.contract.errors import DraftsmithError, ErrorCode, RequestError, parse_wire_text


class ClientError(DraftsmithError):
    """Root of everything the client raises."""


class ServerUnavailable(ClientError):  # noqa: N818 - named by the state
    """The server cannot be reached, went away, or its engine is dead."""


class DeadlineExceeded(ClientError):  # noqa: N818
    """The timeout of the request passed before its end."""


class InvalidRequest(ClientError):  # noqa: N818
    """An option or the prompt is wrong."""

    @classmethod
    def of(cls, error: RequestError) -> "InvalidRequest":
        """The same facts as a contract error found before sending."""
        return cls(error.subject, expected=error.expected, found=error.found, where=error.where, action=error.action)


class TooLong(InvalidRequest):
    """Prompt and ``max_tokens`` do not fit the model's context."""


class Overloaded(ClientError):  # noqa: N818
    """The server's queue is full; try again later."""


class Cancelled(ClientError):  # noqa: N818
    """The request was cancelled by the server or the connection, not by its caller."""


class ModelNotFound(ClientError):  # noqa: N818
    """The server has no such model, or the model is not ready."""


class ServerError(ClientError):
    """The server failed at this request."""


class ProtocolError(ClientError):
    """The server's answer is not what the protocol says."""


_BY_CODE: dict[ErrorCode, type[ClientError]] = {
    ErrorCode.INVALID_REQUEST: InvalidRequest,
    ErrorCode.TOO_LONG: TooLong,
    ErrorCode.OVERLOADED: Overloaded,
    ErrorCode.CANCELLED: Cancelled,
    ErrorCode.UNHEALTHY: ServerUnavailable,
    ErrorCode.INTERNAL: ServerError,
}

# Triton's own messages carry no code of ours; these are parts of its texts (seen with release 24.10).
_BY_PHRASE: tuple[tuple[str, type[ClientError]], ...] = (
    ("Exceeds maximum queue size", Overloaded),
    ("Request timeout expired", Overloaded),
    ("unknown model", ModelNotFound),
    ("no available versions", ModelNotFound),
    ("is not ready", ModelNotFound),
    ("unexpected inference input", InvalidRequest),
    ("unexpected shape for input", InvalidRequest),
    ("inference input data-type", InvalidRequest),
    ("expected number of inputs between", InvalidRequest),
    ("Server is stopping", ServerUnavailable),
    ("stub process", ServerUnavailable),
)

_BY_STATUS: dict[grpc.StatusCode, type[ClientError]] = {
    grpc.StatusCode.UNAVAILABLE: ServerUnavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.NOT_FOUND: ModelNotFound,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
    grpc.StatusCode.UNIMPLEMENTED: ProtocolError,
}


def error_from_message(text: str, where: str) -> ClientError:
    """The error that a message inside a stream stands for: by its ``[code]``, else by Triton's words."""
    code, message = parse_wire_text(text)
    kind = _BY_CODE[code]
    if kind is ServerError:
        kind = _kind_by_phrase(text) or kind
    return _from_server(kind, message.rstrip(". "), where)


def error_from_status(status: grpc.StatusCode, details: str, where: str, timeout: float | None = None) -> ClientError:
    """The error that a failed call stands for; ``timeout`` (seconds) is told when it was the reason."""
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        expected = "" if timeout is None else f"an answer within {timeout:g} s"
        return DeadlineExceeded("timeout", expected=expected, found="none", where=where, action="Raise `timeout`")
    kind = _kind_by_phrase(details) or _BY_STATUS.get(status, ServerError)
    if kind is ServerUnavailable:
        action = "Is the server up, and is this its gRPC port (usually 8001)?" if "failed to conn" in details else ""
        return ServerUnavailable("server", expected="an answer", found=details.rstrip(". "), where=where, action=action)
    return _from_server(kind, details.rstrip(". ") or status.name.lower(), where)


def _from_server(kind: type[ClientError], text: str, where: str) -> ClientError:
    if kind is ModelNotFound:
        return ModelNotFound("model", expected="one that is served", found=text, where=where)
    return kind(text, where=where)


def _kind_by_phrase(text: str) -> type[ClientError] | None:
    return next((kind for phrase, kind in _BY_PHRASE if phrase in text), None)
