"""The steps of a scripted answer, and the messages that they put on the wire; ``testing`` plays them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from draftsmith.model_repo.contract.tensors import RESPONSE_FIELDS
from tritonclient.grpc import service_pb2

from .wire import Value, pack

_RESPONSE_TYPES = {field.name: field.type for field in RESPONSE_FIELDS}


@dataclass(frozen=True)
class Say:
    """A response with text and ids. ``log_probs`` one a token; ``top`` per token the (id, log-probability) pairs."""

    text: str = ""
    token_ids: Sequence[int] = ()
    log_probs: Sequence[float] = ()
    top: Sequence[Sequence[tuple[int, float]]] = ()


@dataclass(frozen=True)
class Finish:
    """The final response: finish reason and counts; ``text`` and ``token_ids`` may come with it."""

    reason: str = "length"
    text: str = ""
    token_ids: Sequence[int] = ()
    num_input_tokens: int = 1
    num_output_tokens: int = 1
    drafted: int = 0
    accepted: int = 0
    target_steps: int = 0


@dataclass(frozen=True)
class Fail:
    """An error inside the stream, as a model sends it; ``[code] message`` (see ``contract.errors``)."""

    message: str


@dataclass(frozen=True)
class Abort:
    """The call ends with a gRPC status."""

    status: grpc.StatusCode
    details: str = ""


@dataclass(frozen=True)
class Hold:
    """Nothing comes until the client goes away or ``release`` is called."""


@dataclass(frozen=True)
class Kill:
    """The server stops at once; every call breaks."""


@dataclass(frozen=True)
class Raw:
    """Any message, for answers that break the protocol."""

    response: Any


Step = Say | Finish | Fail | Abort | Hold | Kill | Raw


def echo_prompt(tensors: dict[str, list[Value]]) -> tuple[Step, ...]:
    """The answer to a request without a script: the words of its prompt."""
    (prompt,) = tensors.get("text_input") or tensors.get("messages") or [b"ids"]
    words = bytes(prompt).decode().split() if isinstance(prompt, bytes) else []
    says = tuple(Say(word if at == 0 else f" {word}", [at]) for at, word in enumerate(words))
    return (*says, Finish("end_id", num_input_tokens=len(words), num_output_tokens=len(words)))


def encode_step(step: Say | Finish | Fail | Raw) -> Any:
    """The ``ModelStreamInferResponse`` of a step that sends one."""
    if isinstance(step, Raw):
        return step.response
    if isinstance(step, Fail):
        return service_pb2.ModelStreamInferResponse(error_message=step.message)
    values: dict[str, tuple[list[int], Sequence[Value]]] = {
        "text_output": ([1], [step.text]),
        "output_ids": ([len(step.token_ids)], step.token_ids),
    }
    if isinstance(step, Say):
        values |= _log_probs(step)
    else:
        for name, value in _counts(step).items():
            values[name] = ([1], [value])
    response = service_pb2.ModelInferResponse(model_name="fake", model_version="1")
    for name, (shape, flat) in values.items():
        datatype = _RESPONSE_TYPES[name]
        response.outputs.add(name=name, datatype=datatype, shape=shape)
        response.raw_output_contents.append(pack(datatype, flat))
    return service_pb2.ModelStreamInferResponse(infer_response=response)


def _log_probs(step: Say) -> dict[str, tuple[list[int], Sequence[Value]]]:
    values: dict[str, tuple[list[int], Sequence[Value]]] = {}
    if step.log_probs:
        values["output_log_probs"] = ([len(step.log_probs)], step.log_probs)
    if step.top:
        shape = [len(step.top), len(step.top[0])]
        values["top_log_prob_ids"] = (shape, [token for row in step.top for token, _ in row])
        values["top_log_probs"] = (shape, [value for row in step.top for _, value in row])
    return values


def _counts(step: Finish) -> dict[str, Value]:
    return {
        "finish_reason": step.reason,
        "num_input_tokens": step.num_input_tokens,
        "num_output_tokens": step.num_output_tokens,
        "num_target_steps": step.target_steps,
        "total_draft_tokens": step.drafted,
        "total_accepted_draft_tokens": step.accepted,
        "acceptance_rate": step.accepted / step.drafted if step.drafted else 0.0,
    }
