"""A fake server in this process, for tests of code that uses the client: real gRPC, scripted answers, no model.

    with FakeServer() as server, Client(server.url) as client:
        server.answer(Say("Hello"), Say(" world"), Finish("end_id"))
        assert client.generate("Hi").text == "Hello world"

A request takes the next script that was given by ``answer``; without one it is answered with the words of its prompt.
"""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent import futures
from types import TracebackType
from typing import Any, Self

import grpc
from draftsmith.model_repo.contract.tensors import REQUEST_FIELDS, RESPONSE_FIELDS, TensorField
from tritonclient.grpc import service_pb2, service_pb2_grpc

from .scripted import Abort, Fail, Finish, Hold, Kill, Raw, Say, Step, echo_prompt, encode_step
from .wire import Value, unpack

__all__ = ["Abort", "Fail", "FakeServer", "Finish", "Hold", "Kill", "Raw", "Say", "Step"]

_MAX_STREAMS = 64


class FakeServer:
    """Triton's gRPC service with ``models`` in its repository.

    Attributes:
        url: what to give a client.
        requests: tensors of each generation request, as name -> values, in order of arrival.
        headers: the metadata of each generation request.
    """

    def __init__(
        self,
        models: Sequence[str] = ("tiny",),
        *,
        other_models: Sequence[str] = (),
        unready_models: Sequence[str] = (),
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self.requests: list[dict[str, list[Value]]] = []
        self.headers: list[dict[str, str]] = []
        self.ready = True
        self.models = tuple(models)
        self.ready_models = (*models, *other_models)
        self.unready_models = tuple(unready_models)
        self._scripts: deque[tuple[Step, ...]] = deque()
        self._lock = threading.Lock()
        self._holds: list[threading.Event] = []
        self._released = False
        self._left = threading.Semaphore(0)
        self._server = grpc.server(
            futures.ThreadPoolExecutor(_MAX_STREAMS),
            options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)],
        )
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Service(self), self._server)
        if credentials is None:
            self.url = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        else:
            self.url = f"grpcs://localhost:{self._server.add_secure_port('127.0.0.1:0', credentials)}"
        self._server.start()

    def answer(self, *steps: Step) -> None:
        """The script of the next request that has none yet; the stream ends after the last step."""
        with self._lock:
            self._scripts.append(steps)

    def release(self) -> None:
        """Let every ``Hold``, also later ones, go on."""
        with self._lock:
            self._released = True
            for hold in self._holds:
                hold.set()

    def wait_until_left(self, timeout: float = 10.0) -> bool:
        """Wait until a client has left before its script was over (cancel, deadline, lost connection); once each."""
        return self._left.acquire(timeout=timeout)

    def stop(self) -> None:
        """Stop at once; every call breaks."""
        self.release()
        self._server.stop(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        self._server.wait_for_termination(10)

    def _receive(self, request: Any, context: Any) -> Iterator[Any]:
        tensors = {
            tensor.name: list(unpack(tensor.datatype, tensor.shape, content))
            for tensor, content in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        with self._lock:
            self.requests.append(tensors)
            self.headers.append(dict(context.invocation_metadata()))
            steps = self._scripts.popleft() if self._scripts else echo_prompt(tensors)
        over = threading.Event()
        context.add_callback(lambda: None if over.is_set() else self._left.release())
        if request.model_name in self.models:
            yield from self._play(steps, context, over)
        else:
            text = f"Request for unknown model: '{request.model_name}' is not found"
            yield service_pb2.ModelStreamInferResponse(error_message=text)
        over.set()

    def _play(self, steps: Sequence[Step], context: Any, over: threading.Event) -> Iterator[Any]:
        for step in steps:
            if isinstance(step, Hold):
                self._hold(context)
            elif isinstance(step, Kill):
                self.stop()
            elif isinstance(step, Abort):
                over.set()
                context.abort(step.status, step.details)
            else:
                yield encode_step(step)

    def _hold(self, context: Any) -> None:
        wake = threading.Event()
        with self._lock:
            self._holds.append(wake)
        if self._released or not context.add_callback(wake.set):
            wake.set()
        wake.wait()


class _Service(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc] # generated without types
    """The calls that the client makes."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server

    def ModelStreamInfer(self, request_iterator: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802
        for request in request_iterator:
            yield from self._server._receive(request, context)

    def ServerReady(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        return service_pb2.ServerReadyResponse(ready=self._server.ready)

    def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        return service_pb2.ModelReadyResponse(ready=request.name in self._server.ready_models)

    def ServerMetadata(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        return service_pb2.ServerMetadataResponse(name="fake", version="0")

    def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        server = self._server
        if request.name not in server.ready_models:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{request.name}' is not found")
        ours = request.name in server.models
        return service_pb2.ModelMetadataResponse(
            name=request.name,
            versions=["1"],
            platform="python",
            inputs=_describe(REQUEST_FIELDS if ours else ()),
            outputs=_describe(RESPONSE_FIELDS if ours else ()),
        )

    def RepositoryIndex(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        server, entry = self._server, service_pb2.RepositoryIndexResponse.ModelIndex
        entries = [entry(name=name, version="1", state="READY") for name in server.ready_models]
        entries += [entry(name=name, state="UNAVAILABLE", reason="unloaded") for name in server.unready_models]
        return service_pb2.RepositoryIndexResponse(models=entries)


def _describe(tensors: Sequence[TensorField]) -> list[Any]:
    kind = service_pb2.ModelMetadataResponse.TensorMetadata
    return [kind(name=tensor.name, datatype=tensor.type, shape=tensor.dims) for tensor in tensors]
