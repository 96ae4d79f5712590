"""The life of one request, from its first attempt to its one ending. Pure state: both kinds of stream drive it."""

import threading
import time
from typing import Any

import grpc
from draftsmith.model_repo.contract.params import GenerationRequest

from .codec import decode_response, encode_request
from .connection import RetryPolicy
from .errors import (
    Cancelled,
    ClientError,
    DeadlineExceeded,
    ProtocolError,
    ServerUnavailable,
    error_from_message,
    error_from_status,
)
from .types import Chunk, DraftStatistics, EndReason, Result, Usage


class Generation:
    """What was sent, what arrived, and how it ended.

    It ends exactly once: with the server's finish reason, by ``cancel``, or with an error; later events change nothing.
    ``timeout`` is in seconds for everything together, retries included; it starts with ``start``.
    """

    def __init__(self, request: GenerationRequest, *, timeout: float | None, retry: RetryPolicy, where: str) -> None:
        self.request = request
        self.timeout = timeout
        self.error: ClientError | None = None
        self._retry = retry
        self._where = where
        self._chunks: list[Chunk] = []
        self._finish_reason = ""
        self._failures = 0
        self._deadline: float | None = None
        self._lock = threading.Lock()  # a stream may be closed by another thread than its reader's

    def start(self) -> None:
        """The clock of the timeout starts to run."""
        if self.timeout is not None and self._deadline is None:
            self._deadline = time.monotonic() + self.timeout

    def encode(self, model: str) -> Any:
        """The message to send for each attempt."""
        return encode_request(self.request, model)

    @property
    def remaining_s(self) -> float | None:
        """Seconds left before the deadline, None without one."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    @property
    def is_over(self) -> bool:
        """True once there is a finish reason."""
        return self._finish_reason != ""

    @property
    def finish_reason(self) -> str:
        """Empty while running; see ``EndReason``."""
        return self._finish_reason

    def receive(self, response: Any) -> Chunk | None:
        """Take a ``ModelStreamInferResponse``; None where it holds nothing. Raises the error that it carries."""
        if self.is_over:
            return None
        if response.error_message:
            raise self.fail(error_from_message(response.error_message, self._where))
        try:
            chunk = decode_response(response.infer_response)
        except ProtocolError as error:
            raise self.fail(error) from error
        if chunk == Chunk():
            return None
        self._chunks.append(chunk)
        if chunk.is_final:
            self._end(chunk.finish_reason)
        return chunk

    def call_ended(self) -> None:
        """The server closed the stream: an error where no final response came before."""
        if not self.is_over:
            raise self.fail(ProtocolError("stream", expected="a final response", found="its end", where=self._where))

    def call_failed(self, status: grpc.StatusCode, details: str) -> float:
        """The call broke; see ``attempt_failed``."""
        return self.attempt_failed(error_from_status(status, details, self._where, self.timeout))

    def attempt_failed(self, error: ClientError) -> float:
        """An attempt failed: seconds to wait before the next one, or raises the error that ends the request.

        Returns 0 where the request is over already (the failure is our own cancellation).
        """
        if self.is_over:
            return 0.0
        delay = self._retry_delay(error)
        if delay is None:
            raise self.fail(error)
        return delay

    def fail(self, error: ClientError) -> ClientError:
        """End with an error; returns it for ``raise``."""
        reason = EndReason.ERROR
        if isinstance(error, DeadlineExceeded):
            reason = EndReason.DEADLINE
        elif isinstance(error, Cancelled):
            reason = EndReason.CANCELLED
        if self._end(reason):
            self.error = error
        return error

    def cancel(self) -> bool:
        """End as cancelled by the caller; False where it was over already."""
        return self._end(EndReason.CANCELLED)

    def result(self) -> Result:
        """Everything that has arrived so far, as one value."""
        chunks = list(self._chunks)
        token_ids = tuple(token for chunk in chunks for token in chunk.token_ids)
        last = chunks[-1] if chunks else Chunk()
        return Result(
            text="".join(chunk.text for chunk in chunks),
            token_ids=token_ids,
            finish_reason=self._finish_reason,
            usage=last.usage or Usage(input=0, output=len(token_ids)),
            draft=last.draft or DraftStatistics(drafted=0, accepted=0, target_steps=0),
            log_probs=tuple(value for chunk in chunks for value in chunk.log_probs),
            top_log_probs=tuple(row for chunk in chunks for row in chunk.top_log_probs),
        )

    def _retry_delay(self, error: ClientError) -> float | None:
        if self._chunks or not isinstance(error, ServerUnavailable):
            return None
        self._failures += 1
        delay = self._retry.delay_s(self._failures)
        remaining = self.remaining_s
        return None if delay is None or (remaining is not None and delay >= remaining) else delay

    def _end(self, reason: str) -> bool:
        with self._lock:
            if self.is_over:
                return False
            self._finish_reason = reason
            return True
