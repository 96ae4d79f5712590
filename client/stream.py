"""A running answer, read by a ``for`` loop."""

import atexit
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import grpc

from .errors import ClientError, ProtocolError
from .generation import Generation
from .types import Chunk, Result

_FINISH_GRACE_S = 1.0  # a server closes the stream right after its final response


class Stream(Iterator[Chunk]):
    """Iterator over the chunks of one answer, and a context manager.

    The request is sent by the first ``next``. Iteration ends exactly once: by ``StopIteration`` after the final chunk
    or after ``close``, or by raising a ``ClientError``; afterwards it only stops. In every ending ``finish_reason``
    says why and ``result`` holds what arrived. Closing it, leaving its ``with`` block or dropping the last reference
    cancels the request on the server. ``close`` may be called from any thread.
    """

    def __init__(self, generation: Generation, open_call: Callable[[Generation], Any]) -> None:
        self._generation = generation
        self._open_call = open_call
        self._call: Any = None
        self._closed = threading.Event()
        self._lock = threading.Lock()

    @property
    def finish_reason(self) -> str:
        """Empty while running, else one of ``EndReason``."""
        return self._generation.finish_reason

    @property
    def result(self) -> Result:
        """What has arrived so far; the whole answer after the end."""
        return self._generation.result()

    def read_all(self) -> Result:
        """Read to the end and return the whole answer."""
        for _ in self:
            pass
        return self.result

    def close(self) -> None:
        """Cancel the request unless it is over; does nothing the second time."""
        cancelled = self._generation.cancel()
        self._closed.set()
        if cancelled:
            self._cancel_call()

    def __next__(self) -> Chunk:
        try:
            while not self._generation.is_over:
                chunk = self._read()
                if chunk is not None:
                    return chunk
        except ProtocolError:
            self._cancel_call()
            raise
        except ClientError:
            self._finish_call()
            raise
        except BaseException:  # KeyboardInterrupt while waiting: nothing may stay behind on the server
            self.close()
            raise
        self._finish_call()
        raise StopIteration

    def _read(self) -> Chunk | None:
        generation = self._generation
        if self._call is None:
            self._open()
        if generation.is_over:  # closed meanwhile by another thread
            return None
        try:
            response = next(self._call)
        except StopIteration:
            generation.call_ended()
            return None
        except grpc.RpcError as error:
            self._call = None
            self._closed.wait(generation.call_failed(error.code(), error.details() or ""))
            return None
        return generation.receive(response)

    def _open(self) -> None:
        generation = self._generation
        generation.start()
        while self._call is None and not generation.is_over:
            try:
                call = self._open_call(generation)
            except ClientError as error:  # the model could not be found out
                self._closed.wait(generation.attempt_failed(error))
                continue
            with self._lock:
                self._call = call
            _open_streams.add(self)
        if generation.is_over:
            self._cancel_call()

    def _finish_call(self) -> None:
        """Let the server close the call after its last response; cancel it where it does not."""
        call, self._call = self._call, None
        if call is None:
            return
        ended = threading.Event()
        if call.add_callback(ended.set) and not ended.wait(_FINISH_GRACE_S):
            call.cancel()

    def _cancel_call(self) -> None:
        with self._lock:
            call = self._call
        if call is not None:
            call.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_lock") and not sys.is_finalizing():
            self.close()


_open_streams: "weakref.WeakSet[Stream]" = weakref.WeakSet()


@atexit.register
def _end_open_streams() -> None:
    """End what the program left open while gRPC's threads still run.

    Later, in an interpreter that is shutting down, those threads are frozen, maybe with the lock of a call, and
    cancelling that call (gRPC's own clean-up does it too) waits for ever.
    """
    for stream in list(_open_streams):
        stream.close()
        stream._finish_call()
