"""``generate`` and ``chat`` against a fake server."""

import io
import json
import signal
import sys
from collections.abc import Iterator

import pytest
from draftsmith.builder.cli import app
from draftsmith.client.testing import Fail, FakeServer, Finish, Say


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


@pytest.fixture(autouse=True)
def keep_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)


def test_the_answer_goes_to_stdout_and_its_figures_to_stderr(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer(Say("Hel", [1]), Say("lo", [2]), Finish("end_id", num_output_tokens=2, drafted=3, accepted=1))
    assert app.run(["generate", server.url, "Hi", "--max-tokens", "7", "--plain", "--stop", "x"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "Hello\n"
    assert shown.err.startswith("2 tokens in ")
    assert "1 of 3 drafted tokens accepted, ended by end_id" in shown.err
    (request,) = server.requests
    assert (request["text_input"], request["max_tokens"], request["speculate"]) == ([b"Hi"], [7], [False])
    assert request["stop_words"] == [b"x"]


def test_json_is_one_object_with_the_ids(server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answer(Say("Hi", [5, 6]), Finish("length", num_input_tokens=3, num_output_tokens=2))
    assert app.run(["generate", server.url, "x", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["text"], facts["token_ids"], facts["finish_reason"]) == ("Hi", [5, 6], "length")
    assert (facts["num_input_tokens"], facts["num_output_tokens"]) == (3, 2)


def test_a_prompt_comes_from_standard_input_and_goes_into_the_template(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Grüße".encode())))
    assert app.run(["generate", server.url, "-", "--chat", "--quiet"]) == 0
    assert json.loads(server.requests[0]["messages"][0]) == [{"role": "user", "content": "Grüße"}]


def test_standard_input_that_is_no_text_is_refused(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ab\xff")))
    assert app.run(["generate", server.url, "-"]) == 2
    assert capsys.readouterr().err == "error: standard input: expected UTF-8 text, found byte 2 is not.\n"
    assert server.requests == []


def test_an_error_after_some_text_starts_a_line_of_its_own(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer(Say("Hel", [1]), Fail("[internal] step: found a bad one."))
    assert app.run(["generate", server.url, "x"]) == 6
    assert capsys.readouterr().out == "Hel\n"


def test_an_error_before_any_text_leaves_stdout_empty(server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answer(Fail("[internal] step: found a bad one."))
    assert app.run(["generate", server.url, "x"]) == 6
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("command", [["generate", "{url}", "x"], ["chat", "{url}"]])
def test_a_servers_error_is_one_line_and_exit_code_6(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello\n"))
    server.answer(Fail("[internal] step: found a bad one."))
    assert app.run([part.format(url=server.url) for part in command] + ["--quiet"]) == 6
    assert capsys.readouterr().err == f"error: step: found a bad one ({server.url}).\n"


def test_an_invalid_option_is_a_usage_error(server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["generate", server.url, "x", "--temperature", "-1"]) == 2
    assert "temperature" in capsys.readouterr().err


def test_nobody_at_the_address_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["generate", "127.0.0.1:9", "x"]) == 6
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "127.0.0.1:9" in error


def test_a_chat_answers_every_line(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hi\nBye\n"))
    server.answer(Say("Hello", [1]), Finish("end_id", num_output_tokens=1))
    server.answer(Say("See you", [2]), Finish("end_id", num_output_tokens=1))
    assert app.run(["chat", server.url, "--system", "Be brief."]) == 0
    assert capsys.readouterr().out == "Hello\nSee you\n"
    assert [len(json.loads(request["messages"][0])) for request in server.requests] == [2, 4]
