"""Triton's request and response objects <-> ``GenerationRequest`` and ``Update``. No state, no engine.

``pb_utils`` is Triton's module ``triton_python_backend_utils``; it exists only inside a model's process, so it is
handed in.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from draftsmith.model_repo.contract.errors import ErrorCode, RequestError
from draftsmith.model_repo.contract.params import GenerationRequest, SamplingParams
from draftsmith.model_repo.contract.tensors import REQUEST_FIELDS, TensorField

from .request import TokenLogprobs, Update

_FIELDS = {field.name: field for field in REQUEST_FIELDS}
_NUMPY_KINDS = {"INT32": "int32", "UINT64": "uint64", "FP32": "float32", "BOOL": "bool", "BYTES": "object"}
_SAMPLING = tuple(field.name for field in fields(SamplingParams) if field.name in _FIELDS)
_TRITON_CODES = {
    ErrorCode.INVALID_REQUEST: "INVALID_ARG",
    ErrorCode.TOO_LONG: "INVALID_ARG",
    ErrorCode.OVERLOADED: "UNAVAILABLE",
    ErrorCode.CANCELLED: "CANCELLED",
    ErrorCode.UNHEALTHY: "UNAVAILABLE",
    ErrorCode.INTERNAL: "INTERNAL",
}


def decode_request(request: Any) -> GenerationRequest:
    """A ``pb_utils.InferenceRequest`` as a checked request.

    Raises ``RequestError`` naming the tensor for an unknown name, a wrong type or shape, text that is not UTF-8,
    messages that are not JSON, or a value out of range.
    """
    values: dict[str, Any] = {}
    for tensor in request.inputs():
        name = tensor.name()
        if name not in _FIELDS:
            raise RequestError(name, expected="a tensor of the contract", found="an unknown name")
        values[name] = _read(_FIELDS[name], tensor.as_numpy())
    sampling = {name: values[name] for name in _SAMPLING if name in values}
    decoded = GenerationRequest(
        text=values.get("text_input"),
        input_ids=values.get("input_ids"),
        messages=_messages(values["messages"]) if "messages" in values else None,
        stream=values.get("stream", True),
        sampling=SamplingParams(**sampling, end_ids=_end_ids(values)),
    )
    decoded.validate()
    return decoded


def encode_update(update: Update, pb_utils: Any) -> Any:
    """An update as a ``pb_utils.InferenceResponse``; counts and the finish reason go with the final one alone."""
    if update.error is not None:
        return encode_error(update.error, pb_utils)
    tensors = [
        _bytes(pb_utils, "text_output", update.text),
        pb_utils.Tensor("output_ids", np.array(update.token_ids, np.int32)),
    ]
    if update.token_logprobs is not None:
        tensors += _logprobs(update, pb_utils)
    if update.is_final:
        tensors.append(_bytes(pb_utils, "finish_reason", update.finish_reason))
        tensors += [pb_utils.Tensor(name, np.array([read(update)], np.int32)) for name, read in _COUNTS]
        tensors.append(pb_utils.Tensor("acceptance_rate", np.array([update.acceptance_rate], np.float32)))
    return pb_utils.InferenceResponse(output_tensors=tensors)


def join_updates(updates: Sequence[Update]) -> list[Update]:
    """Updates of one request that follow each other as one, or two where the last is an error."""
    if updates[-1].error is not None and len(updates) > 1:
        return [*join_updates(updates[:-1]), updates[-1]]
    if len(updates) == 1:
        return list(updates)
    logprobs = [update.token_logprobs for update in updates if update.token_logprobs is not None]
    joined = TokenLogprobs(
        chosen=tuple(value for part in logprobs for value in part.chosen),
        top_ids=tuple(row for part in logprobs for row in part.top_ids),
        top_logprobs=tuple(row for part in logprobs for row in part.top_logprobs),
    )
    return [
        replace(
            updates[-1],
            text="".join(update.text for update in updates),
            token_ids=tuple(token for update in updates for token in update.token_ids),
            token_logprobs=joined if logprobs else None,
        )
    ]


def encode_error(error: RequestError, pb_utils: Any) -> Any:
    """An error as a ``pb_utils.InferenceResponse``; its code stands in the message, all that a stream keeps."""
    code = getattr(pb_utils.TritonError, _TRITON_CODES[error.code])
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(error.wire_text, code))


_COUNTS: tuple[tuple[str, Callable[[Update], int]], ...] = (
    ("num_input_tokens", lambda update: update.num_input_tokens),
    ("num_output_tokens", lambda update: update.num_output_tokens),
    ("num_target_steps", lambda update: update.num_target_steps),
    ("total_draft_tokens", lambda update: update.num_draft_tokens),
    ("total_accepted_draft_tokens", lambda update: update.num_accepted_draft_tokens),
)


def _read(field: TensorField, array: Any) -> Any:
    """The value of a tensor: a plain Python one for dims (1,), a tuple for (-1,)."""
    if array.dtype.name != _NUMPY_KINDS[field.type]:
        raise RequestError(field.name, expected=field.type, found=array.dtype.name)
    if array.ndim != 1 or field.dims not in ((-1,), array.shape):
        raise RequestError(field.name, expected=f"shape {list(field.dims)}", found=str(list(array.shape)))
    values = array.tolist()
    if field.type == "BYTES":
        values = [_text(field.name, value) for value in values]
    return values[0] if field.dims == (1,) else tuple(values)


def _text(name: str, value: bytes | str) -> str:
    try:
        return value if isinstance(value, str) else value.decode()
    except UnicodeDecodeError as error:
        found = f"byte {error.start} (0x{error.object[error.start]:02x}) that is none"
        raise RequestError(name, expected="UTF-8 text", found=found) from error


def _messages(text: str) -> tuple[Any, ...]:
    try:
        turns = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError("messages", expected="JSON", found=str(error)) from error
    if not isinstance(turns, list):
        raise RequestError("messages", expected="a JSON list of {role, content}", found=type(turns).__name__)
    return tuple(turns)


def _end_ids(values: dict[str, Any]) -> tuple[int, ...] | None:
    if not values.get("ignore_eos", False):
        return values.get("end_id")
    if "end_id" in values:
        raise RequestError("ignore_eos", expected="false, or no end_id", found="true and end_id")
    return ()


def _bytes(pb_utils: Any, name: str, text: str) -> Any:
    return pb_utils.Tensor(name, np.array([text.encode()], np.object_))


def _logprobs(update: Update, pb_utils: Any) -> list[Any]:
    logprobs = update.token_logprobs
    if logprobs is None:
        return []
    tensors = [pb_utils.Tensor("output_log_probs", np.array(logprobs.chosen, np.float32))]
    if any(logprobs.top_ids):
        tensors.append(pb_utils.Tensor("top_log_prob_ids", np.array(logprobs.top_ids, np.int32)))
        tensors.append(pb_utils.Tensor("top_log_probs", np.array(logprobs.top_logprobs, np.float32)))
    return tensors
