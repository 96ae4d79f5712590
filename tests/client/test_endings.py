"""Every way a stream can end: once, with a finish reason, and with nothing left behind on the server (case E7)."""

import grpc
import pytest
from draftsmith.client import (
    NO_RETRY,
    Cancelled,
    ClientError,
    DeadlineExceeded,
    ModelNotFound,
    Overloaded,
    ProtocolError,
    ServerError,
    ServerUnavailable,
    TooLong,
)
from draftsmith.client.testing import Abort, Fail, Finish, Hold, Kill, Raw, Say
from tritonclient.grpc import service_pb2

from .twins import open_client


def assert_ended(stream, reason):
    assert stream.finish_reason == reason
    assert stream.result.finish_reason == reason
    assert list(stream) == []
    with pytest.raises(StopIteration):
        next(stream)
    stream.close()
    assert stream.finish_reason == reason


def test_normal_end_comes_with_the_final_chunk(server, client):
    server.answer(Say("a", [1]), Say("b", [2]), Finish("stop_word", "c", [3], num_input_tokens=5, num_output_tokens=3))
    stream = client.stream("x")
    chunks = list(stream)
    assert [chunk.text for chunk in chunks] == ["a", "b", "c"]
    assert [chunk.is_final for chunk in chunks] == [False, False, True]
    assert_ended(stream, "stop_word")
    assert stream.result.text == "abc"
    assert stream.result.token_ids == (1, 2, 3)
    assert stream.result.usage.input == 5
    assert not server.wait_until_left(timeout=0)


def test_answer_of_no_tokens_is_one_final_chunk(server, client):
    server.answer(Finish("end_id", num_output_tokens=0))
    stream = client.stream("x")
    assert [(chunk.text, chunk.finish_reason) for chunk in stream] == [("", "end_id")]
    assert_ended(stream, "end_id")


def test_nothing_after_the_final_response_is_read(server, client):
    server.answer(Finish("length"), Say("late", [9]))
    stream = client.stream("x")
    assert len(list(stream)) == 1
    assert_ended(stream, "length")
    assert stream.result.token_ids == ()


@pytest.mark.parametrize(
    ("message", "kind_of_error"),
    [
        ("[internal] logits: expected finite numbers, found NaN.", ServerError),
        ("[too_long] prompt: expected at most 8 tokens, found 9.", TooLong),
        ("[overloaded] queue: expected room, found 256 waiting.", Overloaded),
        ("[unhealthy] engine: expected a running loop, found a dead one.", ServerUnavailable),
        ("[cancelled] request: found cancelled.", Cancelled),
        ("in ensemble 'x', [too_long] prompt", TooLong),
        ("Request for unknown model: 'x' has no available versions", ModelNotFound),
        ("Exceeds maximum queue size", Overloaded),
        ("whatever", ServerError),
    ],
)
def test_error_after_a_chunk_is_raised_once_and_typed(server, client, message, kind_of_error):
    server.answer(Say("a", [1]), Fail(message))
    stream = client.stream("x")
    assert next(stream).text == "a"
    with pytest.raises(kind_of_error, match=message.split("] ")[-1].rstrip(".")):
        next(stream)
    assert_ended(stream, "cancelled" if kind_of_error is Cancelled else "error")
    assert stream.result.text == "a"


@pytest.mark.parametrize("read_before", [0, 1])
def test_close_cancels_the_request(server, client, read_before):
    server.answer(Say("a", [1]), Hold())
    stream = client.stream("x")
    for _ in range(read_before):
        next(stream)
    stream.close()
    assert_ended(stream, "cancelled")
    assert server.wait_until_left() if read_before else server.requests == []


def test_close_after_the_last_chunk_changes_nothing(server, client):
    server.answer(Say("a", [1]), Finish("end_id"))
    with client.stream("x") as stream:
        while not next(stream).is_final:
            pass
    assert_ended(stream, "end_id")


def test_leaving_the_with_block_by_an_exception_cancels_the_request(server, client):
    server.answer(Say("a", [1]), Hold())
    with pytest.raises(ZeroDivisionError), client.stream("x") as stream:
        next(stream)
        raise ZeroDivisionError
    assert server.wait_until_left()
    assert_ended(stream, "cancelled")


def test_leaving_the_loop_and_dropping_the_stream_cancels_the_request(server, client):
    server.answer(Say("a", [1]), Hold())
    for _ in client.stream("x"):
        break
    client.ready()  # the asyncio twin cancels from its loop
    assert server.wait_until_left()


def test_deadline_ends_a_silent_request(server, client):
    server.answer(Say("a", [1]), Hold())
    stream = client.stream("x", timeout=0.2)
    with pytest.raises(DeadlineExceeded, match=r"timeout: expected an answer within 0.2 s"):
        list(stream)
    assert server.wait_until_left()
    assert_ended(stream, "deadline")
    assert stream.result.text == "a"


def test_killed_server_is_unavailable(server, client):
    server.answer(Say("a", [1]), Kill(), Hold())
    stream = client.stream("x")
    next(stream)
    with pytest.raises(ServerUnavailable, match="server: expected an answer"):
        list(stream)
    assert_ended(stream, "error")


@pytest.mark.parametrize(
    ("status", "kind_of_error"),
    [
        (grpc.StatusCode.UNAVAILABLE, ServerUnavailable),
        (grpc.StatusCode.CANCELLED, Cancelled),
        (grpc.StatusCode.INTERNAL, ServerError),
        (grpc.StatusCode.UNIMPLEMENTED, ProtocolError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Overloaded),
    ],
)
def test_broken_call_is_typed_by_its_status(server, client, status, kind_of_error):
    server.answer(Say("a", [1]), Abort(status, "because"))
    stream = client.stream("x")
    with pytest.raises(kind_of_error, match="because"):
        list(stream)
    assert_ended(stream, "cancelled" if kind_of_error is Cancelled else "error")


def test_stream_without_a_final_response_breaks_the_protocol(server, client):
    server.answer(Say("a", [1]))
    stream = client.stream("x")
    with pytest.raises(ProtocolError, match="stream: expected a final response, found its end"):
        list(stream)
    assert_ended(stream, "error")


def test_tensor_of_a_wrong_type_breaks_the_protocol(server, client):
    response = service_pb2.ModelInferResponse(model_name="tiny", raw_output_contents=[b"\0" * 8])
    response.outputs.add(name="output_ids", datatype="INT64", shape=[1])
    server.answer(Raw(service_pb2.ModelStreamInferResponse(infer_response=response)), Hold())
    stream = client.stream("x")
    with pytest.raises(ProtocolError, match=r"output_ids: expected INT32, found INT64 \(tiny\)"):
        list(stream)
    assert_ended(stream, "error")


def test_closing_the_client_ends_its_streams(server, client):
    server.answer(Say("a", [1]), Hold())
    stream = client.stream("x")
    next(stream)
    client.close()
    with pytest.raises(Cancelled):
        next(stream)
    assert_ended(stream, "cancelled")
    with pytest.raises(ClientError, match="client: expected an open one, found a closed one"):
        client.generate("x")
    with pytest.raises(ClientError, match="client: expected an open one, found a closed one"):
        client.models()


def test_unknown_model_is_named(server, kind):
    with open_client(kind, server.url, model="huge", retry=NO_RETRY) as client:
        stream = client.stream("x")
        with pytest.raises(ModelNotFound, match="'huge' is not found"):
            next(stream)
        assert_ended(stream, "error")
