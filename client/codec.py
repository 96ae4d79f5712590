"""Requests and responses of our contract <-> Triton's messages. Pure; shared by both clients."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from draftsmith.model_repo.contract.params import GenerationRequest, SamplingParams
from draftsmith.model_repo.contract.tensors import REQUEST_FIELDS, RESPONSE_FIELDS
from tritonclient.grpc import service_pb2

from .errors import InvalidRequest, ProtocolError
from .types import Chunk, DraftStatistics, TokenLogProb, Usage
from .wire import Value, pack, unpack

_REQUEST_TYPES = {field.name: field.type for field in REQUEST_FIELDS}
_RESPONSE_TYPES = {field.name: field.type for field in RESPONSE_FIELDS}
_DEFAULTS = SamplingParams()
_SAME_NAME = tuple(field.name for field in fields(SamplingParams) if field.name in _REQUEST_TYPES)  # all but end_ids


def request_tensors(request: GenerationRequest) -> dict[str, Sequence[Value]]:
    """The request as tensor values by name; what has its default is left out."""
    values: dict[str, Sequence[Value]] = {}
    if request.text is not None:
        values["text_input"] = [request.text]
    if request.input_ids is not None:
        values["input_ids"] = request.input_ids
    if request.messages is not None:
        values["messages"] = [json.dumps(request.messages, ensure_ascii=False)]
    values["stream"] = [request.stream]
    sampling = request.sampling
    for name in _SAME_NAME:
        value = getattr(sampling, name)
        if value is not None and value != getattr(_DEFAULTS, name):
            values[name] = value if isinstance(value, tuple) else [value]
    if sampling.end_ids is not None:
        name = "end_id" if sampling.end_ids else "ignore_eos"
        values[name] = sampling.end_ids or [True]
    return values


def encode_request(request: GenerationRequest, model: str, request_id: str = "") -> Any:
    """A ``ModelInferRequest`` for ``model``. ``InvalidRequest`` where a text cannot be written as UTF-8."""
    message = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    for name, values in request_tensors(request).items():
        datatype = _REQUEST_TYPES[name]
        try:
            content = pack(datatype, values)
        except UnicodeEncodeError as error:
            raise InvalidRequest(name, expected="text that UTF-8 can hold", found=f"{error.reason}") from error
        message.inputs.add(name=name, datatype=datatype, shape=[len(values)])
        message.raw_input_contents.append(content)
    return message


def decode_response(response: Any) -> Chunk:
    """A ``ModelInferResponse`` as a chunk; ``ProtocolError`` where its tensors are not our contract's."""
    values = response_tensors(response)
    finish_reason = _text(values, "finish_reason")
    usage = draft = None
    if finish_reason:
        usage = Usage(input=_count(values, "num_input_tokens"), output=_count(values, "num_output_tokens"))
        draft = DraftStatistics(
            drafted=_count(values, "total_draft_tokens"),
            accepted=_count(values, "total_accepted_draft_tokens"),
            target_steps=_count(values, "num_target_steps"),
        )
    token_ids = tuple(values.get("output_ids", ()))
    return Chunk(
        text=_text(values, "text_output"),
        token_ids=token_ids,
        finish_reason=finish_reason,
        usage=usage,
        draft=draft,
        log_probs=tuple(values.get("output_log_probs", ())),
        top_log_probs=_top_log_probs(values, len(token_ids)),
    )


def response_tensors(response: Any) -> dict[str, Sequence[Any]]:
    """Values by tensor name; tensors that are not ours are ignored (a newer server may add some)."""
    if len(response.raw_output_contents) != len(response.outputs):
        raise ProtocolError(
            "response",
            expected=f"{len(response.outputs)} raw tensors",
            found=str(len(response.raw_output_contents)),
            where=response.model_name,
        )
    values: dict[str, Sequence[Any]] = {}
    for output, content in zip(response.outputs, response.raw_output_contents, strict=True):
        datatype = _RESPONSE_TYPES.get(output.name)
        if datatype is None:
            continue
        if output.datatype != datatype:
            raise ProtocolError(output.name, expected=datatype, found=output.datatype, where=response.model_name)
        try:
            values[output.name] = unpack(datatype, output.shape, content)
        except ValueError as error:
            raise ProtocolError(output.name, found=str(error), where=response.model_name) from error
    return values


def _text(values: Mapping[str, Sequence[Any]], name: str) -> str:
    try:
        return b"".join(values.get(name, ())).decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(name, expected="UTF-8", found=error.reason) from error


def _count(values: Mapping[str, Sequence[Any]], name: str) -> int:
    found = values.get(name, [0])
    if len(found) != 1:
        raise ProtocolError(name, expected="one number", found=str(len(found)))
    return int(found[0])


def _top_log_probs(values: Mapping[str, Sequence[Any]], num_tokens: int) -> tuple[tuple[TokenLogProb, ...], ...]:
    ids, log_probs = values.get("top_log_prob_ids", []), values.get("top_log_probs", [])
    if not ids and not log_probs:
        return ()
    if len(ids) != len(log_probs) or not num_tokens or len(ids) % num_tokens:
        raise ProtocolError("top_log_probs", expected=f"{num_tokens} rows", found=f"{len(ids)} and {len(log_probs)}")
    pairs = [TokenLogProb(token, value) for token, value in zip(ids, log_probs, strict=True)]
    width = len(pairs) // num_tokens
    return tuple(tuple(pairs[at : at + width]) for at in range(0, len(pairs), width))
