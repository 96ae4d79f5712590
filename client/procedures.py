"""What needs one or more unary calls, written once for both clients.

A procedure is a generator: it yields the calls it wants, is sent their replies (or thrown their ``ClientError``), and
returns its result. The clients differ in how they make a call, not in what they ask.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from tritonclient.grpc import service_pb2

from .errors import DeadlineExceeded, ModelNotFound, ServerUnavailable
from .types import ModelMetadata, ModelStatus, TensorDescription

T = TypeVar("T")
_OUR_INPUTS = {"text_input", "input_ids", "messages"}
_OUR_OUTPUTS = {"text_output", "output_ids", "finish_reason"}


@dataclass(frozen=True, slots=True)
class Unary:
    """A unary call: method of Triton's service, and its request message."""

    method: str
    request: Any


Procedure = Generator[Unary, Any, T]


def list_models() -> Procedure[tuple[ModelStatus, ...]]:
    """Every model and version in the server's repository."""
    index = yield Unary("RepositoryIndex", service_pb2.RepositoryIndexRequest())
    statuses = []
    for entry in index.models:
        ready = entry.state == "READY"
        ours = False
        if ready:
            ours = yield from _speaks_our_contract(entry.name)
        statuses.append(
            ModelStatus(name=entry.name, version=entry.version, ready=ready, reason=entry.reason, is_draftsmith=ours)
        )
    return tuple(statuses)


def pick_model() -> Procedure[str]:
    """The only draftsmith model that is ready. ``ModelNotFound`` lists the names where it is not the only one."""
    statuses = yield from list_models()
    names = sorted({status.name for status in statuses if status.is_draftsmith})
    if len(names) == 1:
        return names[0]
    if names:
        raise ModelNotFound("model", expected=f"one of {', '.join(names)}", found="none", action="Pass `model=`")
    others = ", ".join(f"{status.name} ({status.reason or 'not one of ours'})" for status in statuses)
    raise ModelNotFound("model", expected="a draftsmith model that is ready", found=others or "an empty repository")


def check_ready(model: str | None) -> Procedure[bool]:
    """True where the server, and the model if one is named, take requests. A server that is away, or
    does not answer in time, is not ready."""
    try:
        reply = yield Unary("ServerReady", service_pb2.ServerReadyRequest())
        if reply.ready and model is not None:
            reply = yield Unary("ModelReady", service_pb2.ModelReadyRequest(name=model))
    except (ServerUnavailable, DeadlineExceeded, ModelNotFound):
        return False
    return bool(reply.ready)


def read_metadata(model: str) -> Procedure[ModelMetadata]:
    """What the server says of ``model`` and of itself."""
    server = yield Unary("ServerMetadata", service_pb2.ServerMetadataRequest())
    found = yield Unary("ModelMetadata", service_pb2.ModelMetadataRequest(name=model))
    return ModelMetadata(
        name=found.name,
        versions=tuple(found.versions),
        inputs=tuple(map(_describe, found.inputs)),
        outputs=tuple(map(_describe, found.outputs)),
        server_name=server.name,
        server_version=server.version,
    )


def _speaks_our_contract(model: str) -> Procedure[bool]:
    try:
        found = yield Unary("ModelMetadata", service_pb2.ModelMetadataRequest(name=model))
    except ModelNotFound:  # unloaded in between
        return False
    inputs = {tensor.name for tensor in found.inputs}
    outputs = {tensor.name for tensor in found.outputs}
    return inputs >= _OUR_INPUTS and outputs >= _OUR_OUTPUTS


def _describe(tensor: Any) -> TensorDescription:
    return TensorDescription(name=tensor.name, type=tensor.datatype, dims=tuple(tensor.shape))
