"""Requests that the client encodes arrive unchanged; updates become the chunks that the client decodes."""

import json

import numpy as np
import pytest
from draftsmith.client.codec import decode_response, encode_request
from draftsmith.client.types import Chunk, DraftStatistics, TokenLogProb, Usage
from draftsmith.client.wire import pack, unpack
from draftsmith.model_repo.contract.errors import ErrorCode, RequestError
from draftsmith.model_repo.contract.params import DRAFT_METHODS, GenerationRequest, SamplingParams
from draftsmith.model_repo.contract.tensors import RESPONSE_FIELDS
from draftsmith.model_repo.runtime.request import TokenLogprobs
from draftsmith.model_repo.runtime.triton_codec import decode_request, encode_error, encode_update, join_updates
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from tests.model_repo import fake_pb_utils as pb_utils
from tests.model_repo.toy_engine import make_update

NUMPY_TYPES = {"INT32": np.int32, "UINT64": np.uint64, "FP32": np.float32, "BOOL": np.bool_, "BYTES": object}
RESPONSE_TYPES = {field.name: field.type for field in RESPONSE_FIELDS}

words = st.lists(st.text(min_size=1, max_size=20), max_size=3).map(tuple)
token_ids = st.integers(0, 2**31 - 1)


def floats(low, high):
    return st.floats(low, high, width=32)


samplings = st.builds(
    SamplingParams,
    max_tokens=st.integers(10, 2**31 - 1),
    min_tokens=st.integers(0, 10),
    temperature=floats(0, 100),
    top_k=token_ids,
    top_p=floats(0.125, 1),
    min_p=floats(0, 1),
    repetition_penalty=floats(0.5, 100),
    presence_penalty=floats(-100, 100),
    frequency_penalty=floats(-100, 100),
    seed=st.none() | st.integers(0, 2**64 - 1),
    stop_words=words,
    bad_words=words,
    end_ids=st.none() | st.lists(token_ids, max_size=3).map(tuple),
    return_log_probs=st.booleans(),
    num_top_log_probs=st.integers(0, 20),
    speculate=st.booleans(),
    max_draft_tokens=st.none() | st.integers(0, 64),
    draft_depth=st.none() | st.integers(0, 64),
    draft_width=st.none() | st.integers(1, 16),
    draft_method=st.none() | st.sampled_from(DRAFT_METHODS),
)
turns = st.fixed_dictionaries({"role": st.text(), "content": st.text()})
prompts = st.one_of(
    st.fixed_dictionaries({"text": st.text(min_size=1)}),
    st.fixed_dictionaries({"input_ids": st.lists(token_ids, min_size=1).map(tuple)}),
    st.fixed_dictionaries({"messages": st.lists(turns, min_size=1, max_size=3).map(tuple)}),
)


def as_triton_gives_it(message):
    """The client's message as the Python backend hands it to a model."""
    tensors = {}
    for tensor, content in zip(message.inputs, message.raw_input_contents, strict=True):
        values = unpack(tensor.datatype, tensor.shape, content)
        tensors[tensor.name] = np.array(values, dtype=NUMPY_TYPES[tensor.datatype]).reshape(tensor.shape)
    return pb_utils.InferenceRequest(**tensors)


@given(prompts, st.booleans(), samplings)
def test_request_arrives_as_it_was_sent(prompt, stream, sampling):
    request = GenerationRequest(**prompt, stream=stream, sampling=sampling)
    assert decode_request(as_triton_gives_it(encode_request(request, "model"))) == request


def test_request_without_options_has_the_defaults():
    request = decode_request(pb_utils.InferenceRequest(text_input=np.array([b"x"], dtype=object)))
    assert request == GenerationRequest(text="x")


@pytest.mark.parametrize(
    ("end_ids", "names"), [((2, 0), {"end_id"}), ((7,), {"end_id"}), ((), {"ignore_eos"}), (None, set())]
)
def test_end_ids_two_own_and_none(end_ids, names):
    """Case E4, as far as the wire goes."""
    request = GenerationRequest(text="x", sampling=SamplingParams(end_ids=end_ids))
    message = encode_request(request, "model")
    assert {tensor.name for tensor in message.inputs} - {"text_input", "stream"} == names
    assert decode_request(as_triton_gives_it(message)).sampling.end_ids == end_ids


def array(value, dtype):
    return np.array(value, dtype=dtype)


TEXT = {"text_input": array([b"x"], object)}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "prompt: expected exactly one of text_input, input_ids, messages, found none"),
        ({**TEXT, "input_ids": array([1], np.int32)}, "prompt: expected exactly one of"),
        ({**TEXT, "temprature": array([1.0], np.float32)}, "temprature: expected a tensor of the contract, found an"),
        ({"text_input": array([b"a\xff"], object)}, r"text_input: expected UTF-8 text, found byte 1 \(0xff\)"),
        ({"text_input": array([b"a", b"b"], object)}, r"text_input: expected shape \[1\], found \[2\]"),
        ({"text_input": array([[b"a"]], object)}, r"text_input: expected shape \[1\], found \[1, 1\]"),
        ({"text_input": array([], object)}, r"text_input: expected shape \[1\], found \[0\]"),
        ({"text_input": array([b""], object)}, "text: expected a prompt of at least one token, found an empty one"),
        ({"input_ids": array([1], np.int64)}, "input_ids: expected INT32, found int64"),
        ({"input_ids": array([-1], np.int32)}, "input_ids: expected an integer from 0 to 2147483647, found -1"),
        ({"input_ids": array([], np.int32)}, "input_ids: expected a prompt of at least one token"),
        ({"messages": array([b"{"], object)}, "messages: expected JSON, found"),
        ({"messages": array([b"{}"], object)}, r"messages: expected a JSON list of {role, content}, found dict"),
        ({"messages": array([b"[" * 100_000], object)}, "messages: expected JSON, found"),
        ({"messages": array([b"[1]"], object)}, r"messages: expected a list of {role, content}, found one of int"),
        ({"messages": array([b'[{"role": "user", "content": [1]}]'], object)}, "messages: expected a string as conte"),
        ({**TEXT, "temperature": array([np.nan], np.float32)}, "temperature: expected a finite number, found nan"),
        ({**TEXT, "top_p": array([2.0], np.float32)}, "top_p: expected a number above 0 to 1, found 2.0"),
        ({**TEXT, "max_tokens": array([0], np.int32)}, "max_tokens: expected an integer from 1"),
        ({**TEXT, "stop_words": array([b"\xc3"], object)}, r"stop_words: expected UTF-8 text, found byte 0 \(0xc3\)"),
        (
            {**TEXT, "ignore_eos": array([True], np.bool_), "end_id": array([1], np.int32)},
            "ignore_eos: expected false, or no end_id, found true and end_id",
        ),
    ],
)
def test_bad_request_is_refused_by_name(tensors, message):
    with pytest.raises(RequestError, match=message):
        decode_request(pb_utils.InferenceRequest(**tensors))


def as_client_gets_it(response):
    """A response as Triton puts it on the wire."""
    message = service_pb2.ModelInferResponse(model_name="model")
    for name, values in response.tensors.items():
        datatype = RESPONSE_TYPES[name]
        assert values.dtype == NUMPY_TYPES[datatype], name
        message.outputs.add(name=name, datatype=datatype, shape=values.shape)
        message.raw_output_contents.append(pack(datatype, values.ravel().tolist()))
    return message


def test_running_update_sends_text_and_ids_alone():
    response = encode_update(make_update("né", (5, 6)), pb_utils)
    assert set(response.tensors) == {"text_output", "output_ids"}
    assert decode_response(as_client_gets_it(response)) == Chunk(text="né", token_ids=(5, 6))


def test_final_update_sends_everything():
    counts = {"num_input_tokens": 3, "num_output_tokens": 2, "num_target_steps": 1}
    update = make_update("", (), "end_id", is_final=True, num_draft_tokens=4, num_accepted_draft_tokens=1, **counts)
    response = encode_update(update, pb_utils)
    assert response.tensors["acceptance_rate"].tolist() == [0.25]
    assert decode_response(as_client_gets_it(response)) == Chunk(
        finish_reason="end_id",
        usage=Usage(input=3, output=2),
        draft=DraftStatistics(drafted=4, accepted=1, target_steps=1),
    )


def test_log_probabilities_keep_their_rows():
    logprobs = TokenLogprobs(chosen=(-0.5, -2.0), top_ids=((3, 1), (9, 4)), top_logprobs=((-0.5, -1.0), (-0.25, -3.0)))
    chunk = decode_response(
        as_client_gets_it(encode_update(make_update("ab", (3, 5), token_logprobs=logprobs), pb_utils))
    )
    assert chunk.log_probs == (-0.5, -2.0)
    assert chunk.top_log_probs == (
        (TokenLogProb(3, -0.5), TokenLogProb(1, -1.0)),
        (TokenLogProb(9, -0.25), TokenLogProb(4, -3.0)),
    )


def test_log_probabilities_without_the_most_probable():
    logprobs = TokenLogprobs(chosen=(-0.5,), top_ids=((),), top_logprobs=((),))
    response = encode_update(make_update("a", (3,), token_logprobs=logprobs), pb_utils)
    assert set(response.tensors) == {"text_output", "output_ids", "output_log_probs"}


def test_final_update_without_tokens_but_with_log_probabilities():
    logprobs = TokenLogprobs(chosen=(), top_ids=(), top_logprobs=())
    update = make_update("", (), "length", is_final=True, token_logprobs=logprobs)
    assert decode_response(as_client_gets_it(encode_update(update, pb_utils))).log_probs == ()


def test_updates_join_to_one():
    logprobs = [TokenLogprobs(chosen=(-v,), top_ids=((i,),), top_logprobs=((-v,),)) for i, v in ((1, 0.5), (2, 0.25))]
    first = make_update("a", (1,), num_output_tokens=1, token_logprobs=logprobs[0])
    second = make_update("b", (2,), "length", is_final=True, num_output_tokens=2, token_logprobs=logprobs[1])
    both = TokenLogprobs(chosen=(-0.5, -0.25), top_ids=((1,), (2,)), top_logprobs=((-0.5,), (-0.25,)))
    joined = make_update("ab", (1, 2), "length", is_final=True, num_output_tokens=2, token_logprobs=both)
    assert join_updates([first, second]) == [joined]
    assert join_updates([first]) == [first]


def test_an_error_does_not_swallow_what_came_before():
    error = make_update(is_final=True, error=RequestError("x"))
    parts = [make_update("a", (1,)), make_update("b", (2,)), error]
    assert join_updates(parts) == [make_update("ab", (1, 2)), error]
    assert join_updates([error]) == [error]


@pytest.mark.parametrize("code", ErrorCode)
def test_error_has_its_code_in_the_message(code):
    response = encode_error(RequestError("thing", code=code, found="it"), pb_utils)
    assert response.error.message() == f"[{code.value}] thing: found it."
    assert isinstance(response.error.code(), str)
    assert encode_update(make_update(is_final=True, error=RequestError("a", code=code)), pb_utils).tensors == {}


def test_messages_are_read_with_their_further_strings():
    turns = [{"role": "tool", "content": "3", "name": "add"}]
    request = pb_utils.InferenceRequest(messages=array([json.dumps(turns)], object))
    assert decode_request(request).messages == tuple(turns)
