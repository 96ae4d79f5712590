"""Retries: on unavailable, before the first token, as often as the policy says, within the deadline."""

import grpc
import pytest
from draftsmith.client import NO_RETRY, DeadlineExceeded, Overloaded, RetryPolicy, ServerUnavailable
from draftsmith.client.testing import Abort, Fail, Finish, Say

from .twins import open_client

AT_ONCE = RetryPolicy(attempts=3, first_delay_s=0.0)
UNAVAILABLE = Abort(grpc.StatusCode.UNAVAILABLE, "try later")


@pytest.fixture
def client(kind, server):
    with open_client(kind, server.url, model="tiny", retry=AT_ONCE) as client:
        yield client


def test_two_failures_then_success(server, client):
    server.answer(UNAVAILABLE)
    server.answer(UNAVAILABLE)
    server.answer(Say("a", [1]), Finish())
    assert client.generate("x").text == "a"
    assert len(server.requests) == 3


def test_gives_up_after_the_last_attempt(server, client):
    for _ in range(3):
        server.answer(UNAVAILABLE)
    with pytest.raises(ServerUnavailable, match="server: expected an answer, found try later"):
        client.generate("x")
    assert len(server.requests) == 3


def test_never_after_the_first_token(server, client):
    server.answer(Say("a", [1]), UNAVAILABLE)
    with pytest.raises(ServerUnavailable):
        client.generate("x")
    assert len(server.requests) == 1


def test_never_for_other_reasons(server, client):
    server.answer(Fail("[overloaded] queue: expected room, found 256 waiting."))
    with pytest.raises(Overloaded):
        client.generate("x")
    assert len(server.requests) == 1


def test_no_retry_tries_once(server, kind):
    server.answer(UNAVAILABLE)
    with open_client(kind, server.url, model="tiny", retry=NO_RETRY) as client, pytest.raises(ServerUnavailable):
        client.generate("x")
    assert len(server.requests) == 1


def test_does_not_wait_beyond_the_deadline(server, kind):
    server.answer(UNAVAILABLE)
    slow = RetryPolicy(attempts=3, first_delay_s=3600.0, max_delay_s=3600.0)
    with (
        open_client(kind, server.url, model="tiny", retry=slow, timeout=60) as client,
        pytest.raises((ServerUnavailable, DeadlineExceeded)),
    ):
        client.generate("x")
    assert len(server.requests) == 1


def test_looking_for_the_model_is_retried_too(kind):
    from draftsmith.client.testing import FakeServer

    with FakeServer() as server:
        url = server.url
    with open_client(kind, url, retry=AT_ONCE) as client:
        stream = client.stream("x")
        with pytest.raises(ServerUnavailable):
            next(stream)
        assert stream.finish_reason == "error"


def test_delays_double_up_to_the_longest_and_end():
    policy = RetryPolicy(attempts=5, first_delay_s=1.0, max_delay_s=3.0)
    for failures, longest in [(1, 1.0), (2, 2.0), (3, 3.0), (4, 3.0)]:
        assert longest / 2 <= policy.delay_s(failures) <= longest
    assert policy.delay_s(5) is None
