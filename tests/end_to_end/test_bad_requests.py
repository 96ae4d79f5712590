"""Requests that cannot be served fail by name, alone, and leave the model as it was."""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
from draftsmith.builder.serve import ServerProcess
from draftsmith.client import Client, InvalidRequest, TooLong
from tritonclient.grpc import InferInput, service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype

from tests.end_to_end.conftest import MAX_LENGTH

pytestmark = pytest.mark.triton
HELLO = np.array([b"Hello"], np.object_)


@pytest.fixture(autouse=True)
def still_the_same(client: Client) -> Iterator[None]:
    """Whatever a test sends, a good request gives the same text before and after."""
    before = client.generate("Hello world", max_tokens=8)
    yield
    assert client.generate("Hello world", max_tokens=8).token_ids == before.token_ids


def send_raw(server: ServerProcess, model: str, **tensors: np.ndarray) -> str:
    """The error of a request made of any tensors, past every check of the client."""
    inputs, contents = [], []
    for name, array in tensors.items():
        entry = InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        entry.set_data_from_numpy(array)
        inputs.append(entry._get_tensor())
        contents.append(entry._get_content())
    request = service_pb2.ModelInferRequest(model_name=model, inputs=inputs, raw_input_contents=contents)
    with grpc.insecure_channel(server.grpc_url) as channel:
        answers = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([request]), timeout=60)
        errors = [answer.error_message for answer in answers]
    return "".join(errors)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"text_input": np.array([b"\xff\xfe"], np.object_)}, ["text_input", "UTF-8"]),
        ({"text_input": np.array([b""], np.object_)}, ["text", "at least one token"]),
        ({"text_input": HELLO, "temperature": np.array([math.nan], np.float32)}, ["temperature", "nan"]),
        ({"text_input": HELLO, "temperature": np.array([math.inf], np.float32)}, ["temperature", "inf"]),
        ({"text_input": HELLO, "top_p": np.array([-1], np.float32)}, ["top_p", "-1"]),
        ({"text_input": HELLO, "max_tokens": np.array([-5], np.int32)}, ["max_tokens", "-5"]),
        ({"text_input": HELLO, "max_tokens": np.array([0], np.int32)}, ["max_tokens", "0"]),
        ({"text_input": HELLO, "max_tokens": np.array([2**31 - 1], np.int32)}, ["max_tokens", f"{MAX_LENGTH}"]),
        ({"text_input": HELLO, "top_k": np.array([-1], np.int32)}, ["top_k", "-1"]),
        ({"text_input": HELLO, "repetition_penalty": np.array([0], np.float32)}, ["repetition_penalty", "0"]),
        ({"text_input": HELLO, "stop_words": np.array([b""], np.object_)}, ["stop_words"]),
        ({"text_input": HELLO, "bad_words": np.array([b"\xc3"], np.object_)}, ["bad_words", "UTF-8"]),
        ({"input_ids": np.array([0, 10**6], np.int32)}, ["input_ids", "1000000"]),
        ({"input_ids": np.array([-1], np.int32)}, ["input_ids", "-1"]),
        ({"input_ids": np.array([], np.int32)}, ["input_ids"]),
        ({"messages": np.array([b"{"], np.object_)}, ["messages", "JSON"]),
        ({"messages": np.array([b'[{"role": "user"}]'], np.object_)}, ["messages", "content"]),
        ({"text_input": HELLO, "input_ids": np.array([1], np.int32)}, ["exactly one of"]),
        ({"max_tokens": np.array([3], np.int32)}, ["exactly one of"]),
        ({"text_input": HELLO, "max_token": np.array([3], np.int32)}, ["max_token"]),
        ({"text_input": HELLO, "max_tokens": np.array([3.0], np.float32)}, ["max_tokens"]),
        ({"text_input": HELLO, "max_tokens": np.array([3, 4], np.int32)}, ["max_tokens"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_a_bad_tensor_is_named(server: ServerProcess, model: str, tensors: dict[str, Any], words: list[str]) -> None:
    error = send_raw(server, model, **tensors)
    assert error
    assert all(word in error for word in words), error


def test_a_prompt_of_ten_megabytes_is_refused(client: Client) -> None:
    with pytest.raises(TooLong):
        client.generate("lorem ipsum " * 900_000, max_tokens=4)


def test_prompt_and_output_may_fill_the_context_and_not_one_token_more(client: Client) -> None:
    fits = client.generate(input_ids=[5] * (MAX_LENGTH - 3), max_tokens=3, end_ids=())
    assert (fits.usage.input, fits.usage.output) == (MAX_LENGTH - 3, 3)
    with pytest.raises(TooLong, match=str(MAX_LENGTH)):
        client.generate(input_ids=[5] * (MAX_LENGTH - 3), max_tokens=4, end_ids=())


def test_one_token_in_and_one_out_is_a_request(client: Client) -> None:
    result = client.generate(input_ids=[5], max_tokens=1, end_ids=())
    assert (result.usage.input, result.usage.output) == (1, 1)


def test_bad_requests_do_not_touch_the_good_ones_beside_them(client: Client) -> None:
    expected = client.generate("a b a b", max_tokens=60, end_ids=()).token_ids

    def good(_: int) -> tuple[int, ...]:
        return client.generate("a b a b", max_tokens=60, end_ids=()).token_ids

    def bad(_: int) -> None:
        with pytest.raises(InvalidRequest):
            client.generate(input_ids=[10**6], max_tokens=4)

    with ThreadPoolExecutor(8) as pool:
        refused = [pool.submit(bad, number) for number in range(20)]
        assert list(pool.map(good, range(4))) == [expected] * 4
        for each in refused:
            each.result()
