"""One final response each and nothing after it, whatever happens (D3); slots of clients that left (D4); death (D5)."""

import threading

import numpy as np
import pytest
from draftsmith.model_repo.runtime.triton_requests import TritonRequests

from tests.model_repo import fake_pb_utils as pb_utils
from tests.model_repo.fake_pb_utils import request_of
from tests.model_repo.toy_engine import ToyEngine, make_update

WAIT_S = 20


class Served:
    """A toy engine behind ``TritonRequests``."""

    def __init__(self, engine):
        self.engine = engine
        self.died = threading.Event()
        engine.start()
        self.requests = TritonRequests(engine, pb_utils, on_dead=self.died.set, poll_s=0.001)

    def send(self, text, **options):
        request = request_of(text, **options)
        self.requests.accept(request)
        return request.sender

    def finish(self, text):
        """Responses to a request that ends by itself."""
        sender = self.send(text)
        assert sender.final.wait(WAIT_S)
        return sender.responses


@pytest.fixture
def served():
    served = Served(ToyEngine(step_s=0.001))
    yield served
    served.requests.close()


def texts(responses):
    return [response.tensors["text_output"][0].decode() for response in responses]


def assert_final_once(sender):
    assert sender.flags.count(pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL) == 1
    assert sender.flags[-1] == pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def test_updates_arrive_in_order_and_the_last_is_final(served):
    sender = served.send("count 3")
    assert sender.final.wait(WAIT_S)
    assert "".join(texts(sender.responses)) == "0 1 2 "
    assert sender.responses[-1].tensors["finish_reason"].tolist() == [b"length"]
    assert_final_once(sender)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fail", "[internal] logits: found NaN."),
        ("long", "[too_long] prompt: expected at most 8 tokens, found 9."),
        ("crash", "[internal] request: found ZeroDivisionError('toy')."),
    ],
)
def test_error_is_the_final_response(served, caplog, text, message):
    sender = served.send(text)
    assert sender.final.wait(WAIT_S)
    assert sender.responses[-1].error.message() == message
    assert_final_once(sender)
    assert "".join(texts(served.finish("count 1"))) == "0 "


def test_request_that_cannot_be_decoded_fails_alone(served):
    bad = pb_utils.InferenceRequest(text_input=np.array([b"\xff"], dtype=object))
    served.requests.accept(bad)
    assert bad.sender.responses[0].error.message().startswith("[invalid_request] text_input: expected UTF-8 text")
    assert_final_once(bad.sender)
    assert "".join(texts(served.finish("count 1"))) == "0 "


@pytest.mark.parametrize("text", ["wait", "talk"])
def test_client_that_leaves_frees_its_slot(served, text):
    sender = served.send(text)
    sender.leave()
    assert sender.final.wait(WAIT_S)
    assert sender.responses[-1].tensors["finish_reason"].tolist() == [b"cancelled"]
    assert_final_once(sender)


def test_a_waiting_client_that_leaves_is_seen_while_another_is_served(served):
    talker, waiter = served.send("talk"), served.send("wait")
    waiter.leave()
    assert waiter.final.wait(WAIT_S)
    talker.leave()
    assert talker.final.wait(WAIT_S)


def test_a_hundred_cancels_leave_nothing_behind(served):
    senders = [served.send(text) for text in ["wait", "talk"] * 50]
    for sender in senders:
        sender.leave()
    for sender in senders:
        assert sender.final.wait(WAIT_S)
        assert_final_once(sender)
    assert served.requests._running == set()


def test_sender_that_fails_cancels_its_request_only(served, caplog):
    sender = served.send("talk")
    assert sender.arrived.acquire(timeout=WAIT_S)
    sender.fails = True
    while served.engine.num_active:
        threading.Event().wait(0.001)
    assert "".join(texts(served.finish("count 1"))) == "0 "
    assert "a response could not be sent" in caplog.text


def test_update_that_cannot_be_encoded_fails_its_request_only(served, caplog, monkeypatch):
    monkeypatch.setattr(ToyEngine, "_count", lambda self, most, cancelled, on_update: on_update(make_update(3)))
    sender = served.send("count 1")
    assert sender.final.wait(WAIT_S)
    assert sender.responses[0].error.message().startswith("[internal] response: found AttributeError")
    monkeypatch.undo()
    assert "".join(texts(served.finish("count 1"))) == "0 "


def test_dead_engine_is_reported_once_and_refuses(served):
    error = served.finish("die")[-1].error
    assert error.message() == "[unhealthy] engine: expected a running loop, found a dead one."
    assert served.died.wait(WAIT_S)
    assert served.finish("count 1")[0].error.message().startswith("[unhealthy] ")


def test_updates_that_wait_for_the_sender_leave_together(served):
    blocker, blocker_may_go = request_of("count 1"), threading.Event()
    blocker.sender.is_cancelled = lambda: blocker_may_go.wait(WAIT_S) and False
    served.requests.accept(blocker)
    sender = served.send("count 40")
    while served.engine.num_active:
        threading.Event().wait(0.001)
    blocker_may_go.set()
    assert sender.final.wait(WAIT_S)
    assert len(sender.responses) < 40
    assert "".join(texts(sender.responses)) == "".join(f"{number} " for number in range(40))
    ids = [token for response in sender.responses for token in response.tensors["output_ids"].tolist()]
    assert ids == list(range(40))
    assert_final_once(sender)


def test_close_ends_what_runs_with_a_final_response():
    served = Served(ToyEngine())
    senders = [served.send("wait"), served.send("talk")]
    served.requests.close()
    for sender in senders:
        assert sender.final.is_set()
        assert_final_once(sender)
    assert not served.died.is_set()
