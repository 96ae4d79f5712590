"""Responses that do not keep to the contract, and the freedom it leaves to newer servers."""

import pytest
from draftsmith.client import Chunk, ProtocolError
from draftsmith.client.codec import decode_response
from draftsmith.client.wire import pack
from tritonclient.grpc import service_pb2


def response_of(**tensors):
    """A response with tensors given as (type, shape, values)."""
    response = service_pb2.ModelInferResponse(model_name="tiny")
    for name, (datatype, shape, values) in tensors.items():
        response.outputs.add(name=name, datatype=datatype, shape=shape)
        response.raw_output_contents.append(pack(datatype, values))
    return response


def test_an_empty_response_is_an_empty_chunk():
    assert decode_response(response_of()) == Chunk()


def test_unknown_tensors_are_ignored():
    response = response_of(text_output=("BYTES", [1], ["a"]), divergence=("FP32", [1], [0.5]))
    assert decode_response(response) == Chunk(text="a")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"text_output": ("BYTES", [1], [b"\xff"])}, "text_output: expected UTF-8, found invalid start byte"),
        ({"output_ids": ("FP32", [1], [1.0])}, r"output_ids: expected INT32, found FP32 \(tiny\)"),
        ({"output_ids": ("INT32", [3], [1])}, r"output_ids: found 4 bytes do not fill the shape \[3\] of INT32"),
        (
            {"finish_reason": ("BYTES", [1], ["length"]), "num_output_tokens": ("INT32", [2], [1, 2])},
            "num_output_tokens: expected one number, found 2",
        ),
        (
            {
                "output_ids": ("INT32", [2], [1, 2]),
                "top_log_prob_ids": ("INT32", [3], [1, 2, 3]),
                "top_log_probs": ("FP32", [3], [0.0, 0.0, 0.0]),
            },
            "top_log_probs: expected 2 rows, found 3 and 3",
        ),
        (
            {"output_ids": ("INT32", [1], [1]), "top_log_prob_ids": ("INT32", [1], [1])},
            "top_log_probs: expected 1 rows, found 1 and 0",
        ),
    ],
)
def test_broken_tensor_is_named(tensors, message):
    with pytest.raises(ProtocolError, match=message):
        decode_response(response_of(**tensors))


def test_tensors_without_content_break_the_protocol():
    response = response_of(text_output=("BYTES", [1], ["a"]))
    del response.raw_output_contents[:]
    with pytest.raises(ProtocolError, match="response: expected 1 raw tensors, found 0"):
        decode_response(response)
