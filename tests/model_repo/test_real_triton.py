"""The adapter under a real Triton, with a toy engine: what stand-ins cannot show (cases D3, D4, D5)."""

import os
from pathlib import Path

import pytest
from draftsmith.builder.serve import ServeOptions, ServerProcess
from draftsmith.builder.serve.stubs import find_stubs
from draftsmith.client import Client, DeadlineExceeded, ModelNotFound, ServerError, ServerUnavailable, TooLong

from tests.model_repo.toy_repository import write_toy_repository

pytestmark = pytest.mark.triton


def start(folder):
    repository = write_toy_repository(folder / "repository")
    return ServerProcess(ServeOptions(repository=repository, http_port=0, grpc_port=0, metrics_port=0))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with start(tmp_path_factory.mktemp("toy")) as server:
        yield server


@pytest.fixture
def client(server):
    with Client(server.grpc_url, timeout=60) as client:
        yield client


def resident_bytes(server):
    pid = find_stubs(server.pid)["toy"]
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_answer_arrives_whole_and_ends_once(client):
    stream = client.stream("count 30")
    assert "".join(chunk.text for chunk in stream) == "".join(f"{number} " for number in range(30))
    assert stream.result.token_ids == tuple(range(30))
    assert stream.result.draft.acceptance_rate == 0.75
    assert (stream.finish_reason, list(stream)) == ("length", [])


def test_answer_without_tokens_is_its_final_response(client):
    assert [chunk.finish_reason for chunk in client.stream("count 0")] == ["length"]


@pytest.mark.parametrize(
    ("prompt", "kind", "text"),
    [
        ("fail", ServerError, "logits: found NaN"),
        ("long", TooLong, "prompt: expected at most 8 tokens, found 9"),
        ("crash", ServerError, r"request: found ZeroDivisionError\('toy'\)"),
    ],
)
def test_errors_keep_their_kind_and_fail_alone(client, prompt, kind, text):
    stream = client.stream(prompt)
    with pytest.raises(kind, match=text):
        list(stream)
    assert (stream.finish_reason, list(stream)) == ("error", [])
    assert client.generate("count 1").text == "0 "


def test_a_hundred_cancels_in_every_state_free_their_slots_and_no_memory_grows(client, server):
    def cancel(times):
        for _ in range(times):
            with client.stream("talk") as stream:
                next(stream)
            with pytest.raises(DeadlineExceeded):
                client.stream("wait", timeout=0.02).read_all()
        while (active := client.generate("active").text) != "0":
            assert int(active) <= 2 * times

    cancel(20)
    before = resident_bytes(server)
    cancel(100)
    assert resident_bytes(server) - before < 4_000_000


def test_a_dead_loop_turns_the_model_not_ready(tmp_path):
    with start(tmp_path) as server, Client(server.grpc_url, timeout=60) as client:
        assert client.ready("toy")
        with pytest.raises(ServerUnavailable, match="engine: expected a running loop, found a dead one"):
            client.generate("die")
        while client.ready("toy"):
            pass
        with pytest.raises(ModelNotFound):
            client.generate("count 1", model="toy")
