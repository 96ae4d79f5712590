"""Cancelled, killed, damaged, shut down: everything ends, with a reason, and leaves nothing behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from draftsmith.builder.cli import app
from draftsmith.builder.errors import ServeError
from draftsmith.builder.serve import ServerProcess
from draftsmith.builder.serve.preflight import SHM
from draftsmith.builder.serve.stubs import find_stubs
from draftsmith.client import Client, ClientError

from tests.end_to_end.conftest import MAX_LENGTH

pytestmark = pytest.mark.triton
LONG = MAX_LENGTH - 40
ONE_MODEL = ("tiny_fp16",)


def leftovers(server: ServerProcess) -> list[str]:
    return [path.name for path in SHM.glob(server._shm_prefix + "*")]


@contextmanager
def killed_on_failure(process: subprocess.Popen[str]) -> Iterator[None]:
    """A failed assertion must not wait for a server that nobody ends."""
    try:
        yield
    except BaseException:
        process.kill()
        raise


def test_a_hundred_cancelled_streams_leave_every_slot_free(client: Client) -> None:
    for _ in range(100):
        with client.stream("a b a b", max_tokens=LONG, end_ids=()) as stream:
            next(stream)
    results = [client.generate("Hello", max_tokens=5, end_ids=()) for _ in range(5)]
    assert len({result.token_ids for result in results}) == 1


def test_a_stream_whose_server_is_killed_ends_with_an_error_and_the_starter_says_why(
    serve: Callable[..., ServerProcess],
) -> None:
    server = serve(ONE_MODEL)
    with server, Client(server.grpc_url, timeout=60.0) as client:
        failures: list[ServeError] = []

        def supervise() -> None:
            try:
                server.wait()
            except ServeError as error:
                failures.append(error)

        supervisor = threading.Thread(target=supervise)
        supervisor.start()
        with client.stream("a b a b", max_tokens=LONG, end_ids=()) as stream:
            next(stream)
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            with pytest.raises(ClientError):
                for _ in stream:
                    pass
        supervisor.join(30)
    assert len(failures) == 1
    assert "signal SIGKILL" in str(failures[0])
    assert leftovers(server) == []


def test_a_model_whose_process_was_killed_is_back_after_supervision(serve: Callable[..., ServerProcess]) -> None:
    server = serve(ONE_MODEL)
    with server, Client(server.grpc_url, timeout=60.0) as client:
        expected = client.generate("Hello", max_tokens=5).token_ids
        supervisor = threading.Thread(target=server.wait)
        supervisor.start()
        assert server.pid is not None
        first = find_stubs(server.pid)["tiny_fp16"]
        os.kill(first, signal.SIGKILL)
        answered = threading.Event()
        for _ in range(300):
            if find_stubs(server.pid).get("tiny_fp16", first) != first and client.ready("tiny_fp16"):
                break
            answered.wait(0.1)
        assert client.generate("Hello", max_tokens=5).token_ids == expected
        server.stop()
        supervisor.join(30)
        assert not supervisor.is_alive()


def test_stopping_while_a_client_streams_ends_both(serve: Callable[..., ServerProcess]) -> None:
    server = serve(ONE_MODEL)
    with server, Client(server.grpc_url, timeout=60.0) as client, client.stream("a b", max_tokens=LONG) as stream:
        next(stream)
        pid = server.pid
        server.stop()
        try:
            for _ in stream:
                pass
        except ClientError:
            pass
        assert stream.finish_reason
    assert not Path(f"/proc/{pid}").exists()
    assert leftovers(server) == []


def test_a_moved_repository_serves_the_same(
    serve: Callable[..., ServerProcess], repository: Path, tmp_path: Path, server: ServerProcess
) -> None:
    moved = tmp_path / "some where; else" / "naïve"
    shutil.copytree(repository / "tiny_fp16", moved / "tiny_fp16")
    with Client(server.grpc_url, model="tiny_fp16", timeout=60.0) as client:
        expected = client.generate("Hello", max_tokens=8).token_ids
    with serve(folder=moved) as other, Client(other.grpc_url, timeout=60.0) as client:
        assert client.generate("Hello", max_tokens=8).token_ids == expected


def test_a_changed_weight_stops_the_server_with_one_line_that_names_the_file(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    shutil.copytree(repository / "tiny_fp16", tmp_path / "tiny_fp16")
    weights = tmp_path / "tiny_fp16" / "1" / "target.weights"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    ports = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
    assert app.run(["serve", str(tmp_path), "--quiet", *ports]) == 6
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "target.weights: expected SHA-256" in error


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_the_serve_command_prints_its_endpoints_and_ends_with_everything_it_started(
    repository: Path, sent: signal.Signals
) -> None:
    ports = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
    code = "from draftsmith.builder.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", str(repository), "-m", "tiny_fp16", "--json", "--quiet", *ports]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving,
        killed_on_failure(serving),
    ):
        assert serving.stdout is not None
        lines = iter(serving.stdout.readline, "}\n")
        endpoints = json.loads("".join(lines) + "}")
        assert endpoints["models"] == ["tiny_fp16"]
        with Client(endpoints["grpc"], timeout=60.0) as client:
            assert client.generate("Hello", max_tokens=3, end_ids=()).usage.output == 3
        with urllib.request.urlopen(f"http://{endpoints['metrics']}/metrics", timeout=10) as metrics:
            assert b"nv_inference_request_success" in metrics.read()
        serving.send_signal(sent)
        _, errors = serving.communicate(timeout=60)
    assert (serving.returncode, errors) == (128 + sent, "")
    assert not list(SHM.glob(f"draftsmith_{serving.pid}_*"))
