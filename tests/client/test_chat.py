"""The chat loop over lines, with a fake server and a fake clock."""

import io
import itertools
import json

import pytest
from draftsmith.client import Client, DraftStatistics, Result, Usage
from draftsmith.client.chat import Chat, describe, read_lines
from draftsmith.client.testing import Finish, Hold, Say


def chat_with(server, lines, *, options=None, system=None, out=None):
    out, notes = out or io.StringIO(), io.StringIO()
    clock = itertools.count(step=2).__next__
    with Client(server.url) as client:
        chat = Chat(client, options or {}, system=system, out=out, notes=notes, clock=clock)
        chat.run(iter(lines))
    return out.getvalue(), notes.getvalue().splitlines(), chat.messages


def sent_messages(server):
    return [json.loads(request["messages"][0]) for request in server.requests]


def test_every_turn_is_sent_with_those_before(server):
    server.answer(Say("Hel", [1]), Say("lo", [2]), Finish("end_id", num_output_tokens=2))
    server.answer(Say("Fine", [3]), Finish("end_id", num_output_tokens=1))
    out, _, messages = chat_with(server, ["Hi\n", "\n", "How are you?\n"], system="Be brief.")
    system = {"role": "system", "content": "Be brief."}
    first = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    second = [{"role": "user", "content": "How are you?"}, {"role": "assistant", "content": "Fine"}]
    assert out == "Hello\nFine\n"
    assert sent_messages(server) == [[system, first[0]], [system, *first, second[0]]]
    assert messages == [system, *first, *second]


def test_new_starts_over_and_quit_ends(server):
    chat_with(server, ["a", "/new", "b", "/quit", "c"])
    assert [len(messages) for messages in sent_messages(server)] == [1, 1]


def test_options_are_sent(server):
    chat_with(server, ["a"], options={"max_tokens": 9})
    assert server.requests[0]["max_tokens"] == [9]


def test_speed_and_acceptance_are_shown(server):
    server.answer(Say("a", [1]), Finish("end_id", num_output_tokens=30, drafted=40, accepted=10, target_steps=20))
    _, notes, _ = chat_with(server, ["x"])
    assert notes[-1] == "30 tokens, 15.0 tokens/s, 10 of 40 drafted tokens accepted, 25 %"


def test_interrupt_stops_the_answer_and_keeps_what_came(server):
    class Interrupting(io.StringIO):
        def flush(self):
            if self.getvalue() == "a":
                self.write("^C")
                raise KeyboardInterrupt

    server.answer(Say("a", [1]), Hold())
    server.answer(Say("b", [2]), Finish())
    out, notes, messages = chat_with(server, ["x", "y"], out=Interrupting())
    assert server.wait_until_left()
    assert out == "a^C\nb\n"
    assert notes[1].endswith("cancelled")
    assert messages[1] == {"role": "assistant", "content": "a"}


def test_describe_without_drafts():
    result = Result(text="a", token_ids=(1,), finish_reason="length", usage=Usage(1, 3), draft=DraftStatistics(0, 0, 3))
    assert describe(result, 0.0) == "3 tokens"


def test_lines_come_from_a_file():
    assert list(read_lines(io.StringIO("a\nb"))) == ["a\n", "b"]


def test_a_terminal_is_read_until_its_end(monkeypatch):
    answers = iter(["a", KeyboardInterrupt, "b", EOFError])

    def fake_input(prompt):
        answer = next(answers)
        if isinstance(answer, str):
            return answer
        raise answer

    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", fake_input)
    assert list(read_lines()) == ["a", "b"]


@pytest.mark.parametrize("line", ["  ", "\n"])
def test_empty_lines_are_not_sent(server, line):
    chat_with(server, [line])
    assert server.requests == []
