"""The blocking client."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import grpc
from tritonclient.grpc import service_pb2_grpc

from .connection import RetryPolicy, TlsOptions
from .core import ClientCore
from .errors import ClientError, error_from_status
from .generation import Generation
from .options import Message, Prompt, SamplingOptions
from .procedures import Procedure, Unary, check_ready, list_models, pick_model, read_metadata
from .stream import Stream
from .types import ModelMetadata, ModelStatus, Result

T = TypeVar("T")


class Client:
    """Talks to a Triton server that serves draftsmith models. Thread-safe; any number of streams at a time.

    Arguments:
        url: ``host:port`` of the gRPC endpoint; ``grpcs://host:port`` for TLS.
        model: the model to ask; None takes the server's only draftsmith model.
        tls: certificates; given, the connection is encrypted.
        headers: sent with every call (names are sent in lower case).
        timeout: seconds that a request may take in all, None for ever; each call can say otherwise.
        retry: what to do when the server is unavailable and no token has arrived.

    Every method raises a ``ClientError`` (see ``draftsmith.client.errors`` for the tree).

        >>> with Client("localhost:8001") as client:
        ...     for chunk in client.stream("Once upon a time", max_tokens=64):
        ...         print(chunk.text, end="", flush=True)
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
        connection = self._core.connection
        if connection.tls is None:
            self._channel = grpc.insecure_channel(connection.target, connection.channel_options)
        else:
            self._channel = grpc.secure_channel(
                connection.target, connection.tls.credentials(), connection.channel_options
            )
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def generate(
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
        with self._start(given, options, stream=False, model=model, timeout=timeout) as stream:
            return stream.read_all()

    def stream(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        input_ids: Iterable[int] | None = None,
        model: str | None = None,
        timeout: float | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Stream:
        """The same answer as it is made, a chunk per accepted block; options are checked here, before sending."""
        given = Prompt(text=prompt, messages=messages, input_ids=input_ids)
        return self._start(given, options, stream=True, model=model, timeout=timeout)

    def models(self) -> tuple[ModelStatus, ...]:
        """Every model of the server's repository, ready or not."""
        return self._run(list_models())

    def ready(self, model: str | None = None) -> bool:
        """True where the server (and the model, if one is named here or in the client) takes requests."""
        return self._run(check_ready(model or self._core.model))

    def metadata(self, model: str | None = None) -> ModelMetadata:
        """Inputs, outputs and versions of the model."""
        return self._run(read_metadata(model or self._model_name(self._core.timeout)))

    def close(self) -> None:
        """Close the connection; streams that still run end with ``Cancelled``."""
        self._core.is_closed = True
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _start(
        self, prompt: Prompt, options: SamplingOptions, *, stream: bool, model: str | None, timeout: float | None
    ) -> Stream:
        generation = self._core.prepare(prompt, options, stream=stream, timeout=timeout)

        def open_call(generation: Generation) -> Any:
            self._core.check_open()
            name = model or self._model_name(generation.remaining_s)
            try:
                return self._stub.ModelStreamInfer(
                    iter([generation.encode(name)]),
                    timeout=generation.remaining_s,
                    metadata=self._core.connection.headers,
                )
            except ValueError as error:  # gRPC's word for a channel that was closed just now
                raise self._core.closed_error() from error

        return Stream(generation, open_call)

    def _model_name(self, timeout: float | None) -> str:
        if self._core.model is None:
            self._core.model = self._run(pick_model(), timeout)
        return self._core.model

    def _run(self, procedure: Procedure[T], timeout: float | None = None) -> T:
        limit = self._core.timeout if timeout is None else timeout
        try:
            wanted = next(procedure)
            while True:
                try:
                    reply = self._unary(wanted, limit)
                except ClientError as error:
                    wanted = procedure.throw(error)
                else:
                    wanted = procedure.send(reply)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _unary(self, wanted: Unary, timeout: float | None) -> Any:
        self._core.check_open()
        method = getattr(self._stub, wanted.method)
        try:
            return method(wanted.request, timeout=timeout, metadata=self._core.connection.headers)
        except grpc.RpcError as error:
            where = self._core.connection.target
            raise error_from_status(error.code(), error.details() or "", where, timeout) from error
        except ValueError as error:
            raise self._core.closed_error() from error
