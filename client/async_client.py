"""The asyncio client: ``Client`` with awaits."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import grpc
from tritonclient.grpc import service_pb2_grpc

from .async_stream import AsyncStream
from .connection import RetryPolicy, TlsOptions
from .core import ClientCore
from .errors import ClientError, error_from_status
from .generation import Generation
from .options import Message, Prompt, SamplingOptions
from .procedures import Procedure, Unary, check_ready, list_models, pick_model, read_metadata
from .types import ModelMetadata, ModelStatus, Result

T = TypeVar("T")


class AsyncClient:
    """The twin of ``Client`` for asyncio: same arguments, same methods, same errors.

        >>> async with AsyncClient("localhost:8001") as client:
        ...     async for chunk in client.stream("Once upon a time", max_tokens=64):
        ...         print(chunk.text, end="", flush=True)

    It belongs to the event loop in which it is first used.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        tls: TlsOptions | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
    ) -> None:
        self._core = ClientCore(url, model=model, tls=tls, headers=headers, timeout=timeout, retry=retry)
        self._channel: grpc.aio.Channel | None = None  # opened by the first call, in its event loop
        self._stub: Any = None

    async def generate(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        input_ids: Iterable[int] | None = None,
        model: str | None = None,
        timeout: float | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Result:
        """One whole answer to exactly one of ``prompt``, ``messages`` (chat turns) and ``input_ids``."""
        given = Prompt(text=prompt, messages=messages, input_ids=input_ids)
        async with self._start(given, options, stream=False, model=model, timeout=timeout) as stream:
            return await stream.read_all()

    def stream(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        input_ids: Iterable[int] | None = None,
        model: str | None = None,
        timeout: float | None = None,
        **options: Unpack[SamplingOptions],
    ) -> AsyncStream:
        """The same answer as it is made, a chunk per accepted block; options are checked here, before sending."""
        given = Prompt(text=prompt, messages=messages, input_ids=input_ids)
        return self._start(given, options, stream=True, model=model, timeout=timeout)

    async def models(self) -> tuple[ModelStatus, ...]:
        """Every model of the server's repository, ready or not."""
        return await self._run(list_models())

    async def ready(self, model: str | None = None) -> bool:
        """True where the server (and the model, if one is named here or in the client) takes requests."""
        return await self._run(check_ready(model or self._core.model))

    async def metadata(self, model: str | None = None) -> ModelMetadata:
        """Inputs, outputs and versions of the model."""
        return await self._run(read_metadata(model or await self._model_name(self._core.timeout)))

    async def close(self) -> None:
        """Close the connection; streams that still run end with ``Cancelled``."""
        self._core.is_closed = True
        if self._channel is not None:
            await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _start(
        self, prompt: Prompt, options: SamplingOptions, *, stream: bool, model: str | None, timeout: float | None
    ) -> AsyncStream:
        generation = self._core.prepare(prompt, options, stream=stream, timeout=timeout)

        async def open_call(generation: Generation) -> Any:
            name = model or await self._model_name(generation.remaining_s)
            return self._open().ModelStreamInfer(
                iter([generation.encode(name)]),
                timeout=generation.remaining_s,
                metadata=self._core.connection.headers,
            )

        return AsyncStream(generation, open_call)

    async def _model_name(self, timeout: float | None) -> str:
        if self._core.model is None:
            self._core.model = await self._run(pick_model(), timeout)
        return self._core.model

    async def _run(self, procedure: Procedure[T], timeout: float | None = None) -> T:
        limit = self._core.timeout if timeout is None else timeout
        try:
            wanted = next(procedure)
            while True:
                try:
                    reply = await self._unary(wanted, limit)
                except ClientError as error:
                    wanted = procedure.throw(error)
                else:
                    wanted = procedure.send(reply)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _unary(self, wanted: Unary, timeout: float | None) -> Any:
        method = getattr(self._open(), wanted.method)
        try:
            return await method(wanted.request, timeout=timeout, metadata=self._core.connection.headers)
        except grpc.RpcError as error:
            where = self._core.connection.target
            raise error_from_status(error.code(), error.details() or "", where, timeout) from error

    def _open(self) -> Any:
        self._core.check_open()
        if self._channel is None:
            connection = self._core.connection
            if connection.tls is None:
                self._channel = grpc.aio.insecure_channel(connection.target, connection.channel_options)
            else:
                self._channel = grpc.aio.secure_channel(
                    connection.target, connection.tls.credentials(), connection.channel_options
                )
            self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        return self._stub
