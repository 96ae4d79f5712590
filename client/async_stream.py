"""A running answer, read by an ``async for`` loop: ``Stream`` with awaits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import grpc

from .errors import ClientError, ProtocolError
from .generation import Generation
from .types import Chunk, Result

_FINISH_GRACE_S = 1.0  # a server closes the stream right after its final response


class AsyncStream(AsyncIterator[Chunk]):
    """Asynchronous iterator over the chunks of one answer, and an asynchronous context manager.

    It behaves as ``Stream`` does; besides, cancelling the task that reads it cancels the request. It belongs to the
    event loop in which it is read.
    """

    def __init__(self, generation: Generation, open_call: Callable[[Generation], Awaitable[Any]]) -> None:
        self._generation = generation
        self._open_call = open_call
        self._call: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = asyncio.Event()

    @property
    def finish_reason(self) -> str:
        """Empty while running, else one of ``EndReason``."""
        return self._generation.finish_reason

    @property
    def result(self) -> Result:
        """What has arrived so far; the whole answer after the end."""
        return self._generation.result()

    async def read_all(self) -> Result:
        """Read to the end and return the whole answer."""
        async for _ in self:
            pass
        return self.result

    async def close(self) -> None:
        """Cancel the request unless it is over; does nothing the second time."""
        self._cancel()

    async def __anext__(self) -> Chunk:
        try:
            while not self._generation.is_over:
                chunk = await self._read()
                if chunk is not None:
                    return chunk
        except ProtocolError:
            self._cancel_call()
            raise
        except ClientError:
            await self._finish_call()
            raise
        except BaseException:  # the task was cancelled: nothing may stay behind on the server
            self._cancel()
            raise
        await self._finish_call()
        raise StopAsyncIteration

    async def _read(self) -> Chunk | None:
        generation = self._generation
        if self._call is None:
            await self._open()
        if generation.is_over:  # closed meanwhile by another task
            return None
        try:
            response = await self._call.read()
        except grpc.RpcError as error:
            self._call = None
            await self._wait(generation.call_failed(error.code(), error.details() or ""))
            return None
        except asyncio.CancelledError:
            if _task_is_cancelled():
                raise
            self._call = None  # cancelled by close, of the stream or of the client
            await self._wait(generation.call_failed(grpc.StatusCode.CANCELLED, "the call was cancelled"))
            return None
        if response is grpc.aio.EOF:
            await self._read_end()
            return None
        return generation.receive(response)

    async def _read_end(self) -> None:
        """No more responses: gRPC's asyncio calls tell a failure only by their status."""
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            self._generation.call_ended()
            return
        details = await self._call.details()
        self._call = None
        await self._wait(self._generation.call_failed(code, details or ""))

    async def _open(self) -> None:
        generation = self._generation
        generation.start()
        self._loop = asyncio.get_running_loop()
        while self._call is None and not generation.is_over:
            try:
                self._call = await self._open_call(generation)
            except ClientError as error:  # the model could not be found out
                await self._wait(generation.attempt_failed(error))
        if generation.is_over:
            self._cancel_call()

    async def _wait(self, delay_s: float) -> None:
        if delay_s > 0:
            try:
                await asyncio.wait_for(self._closed.wait(), delay_s)
            except TimeoutError:
                return

    async def _finish_call(self) -> None:
        """Let the server close the call after its last response; cancel it where it does not."""
        call, self._call = self._call, None
        if call is None:
            return
        try:
            await asyncio.wait_for(asyncio.shield(call.code()), _FINISH_GRACE_S)
        except TimeoutError:
            call.cancel()

    def _cancel(self) -> None:
        cancelled = self._generation.cancel()
        self._closed.set()
        if cancelled:
            self._cancel_call()

    def _cancel_call(self) -> None:
        if self._call is not None:
            self._call.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if getattr(self, "_call", None) is None or self._generation.is_over:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._call.cancel)


def _task_is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
