"""A program that ends in the middle of things ends: no hang, whatever was left open (case E6)."""

import subprocess
import sys

import pytest
from draftsmith.client.testing import FakeServer, Finish, Hold, Kill, Say

BLOCKING = """
import sys
from draftsmith.client import Client
client = Client(sys.argv[1])
stream = client.stream("x")
"""

ASYNCIO = """
import asyncio, sys
from draftsmith.client import AsyncClient
client = AsyncClient(sys.argv[1])
stream = client.stream("x")
async def main():
"""

PROGRAMS = {
    "loop left early": (BLOCKING + "for chunk in stream: break", 0),
    "stream kept in a global": (BLOCKING + "print(next(stream).text)", 0),
    "exception in the loop": (BLOCKING + "for chunk in stream: 1 / 0", 1),
    "exit in the loop": (BLOCKING + "for chunk in stream: sys.exit(3)", 3),
    "read in a daemon thread": (
        BLOCKING
        + "import threading\n"
        + "seen = threading.Event()\n"
        + "def read():\n    for chunk in stream: seen.set()\n"
        + "threading.Thread(target=read, daemon=True).start()\n"
        + "seen.wait()",
        0,
    ),
    "nothing read": (BLOCKING, 0),
    "asyncio: loop left early": (ASYNCIO + "    async for chunk in stream: break\nasyncio.run(main())", 0),
    "asyncio: exception in the loop": (ASYNCIO + "    async for chunk in stream: 1 / 0\nasyncio.run(main())", 1),
    "asyncio: task cancelled": (
        ASYNCIO
        + "    task = asyncio.create_task(stream.read_all())\n"
        + "    while not stream.result.text: await asyncio.sleep(0)\n"
        + "    task.cancel()\n"
        + "    try: await task\n"
        + "    except asyncio.CancelledError: sys.exit(0 if stream.finish_reason == 'cancelled' else 9)\n"
        + "asyncio.run(main())",
        0,
    ),
    "asyncio: task left behind": (
        ASYNCIO
        + "    global task\n"
        + "    task = asyncio.create_task(stream.read_all())\n"
        + "    while not stream.result.text: await asyncio.sleep(0)\n"
        + "asyncio.run(main())",
        0,
    ),
}


def run(program, url):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, url], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_ends_and_its_request_is_cancelled(server, name):
    program, code = PROGRAMS[name]
    server.answer(Say("a", [1]), Hold())
    done = run(program, server.url)
    assert done.returncode == code, done.stderr
    assert "Exception ignored" not in done.stderr
    if name != "nothing read":
        assert server.wait_until_left()


@pytest.mark.parametrize(
    "program", [BLOCKING + "stream.read_all()", ASYNCIO + "    await stream.read_all()\nasyncio.run(main())"]
)
def test_program_whose_server_dies_ends_with_the_error(server, program):
    server.answer(Say("a", [1]), Kill(), Hold())
    done = run(program, server.url)
    assert done.returncode == 1
    assert "draftsmith.client.errors.ServerUnavailable: server: expected an answer" in done.stderr


def test_interrupt_while_waiting_cancels_the_request(server):
    program = BLOCKING + (
        "import os, signal, threading\n"
        "print(next(stream).text)\n"
        "threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "try: next(stream)\n"
        "except KeyboardInterrupt: sys.exit(0 if stream.finish_reason == 'cancelled' else 9)\n"
    )
    server.answer(Say("a", [1]), Hold())
    done = run(program, server.url)
    assert done.returncode == 0, done.stderr
    assert server.wait_until_left()


def test_a_finished_answer_leaves_nothing(server):
    server.answer(Say("a", [1]), Finish())
    done = run(BLOCKING + "print(stream.read_all().text)", server.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\n", "")


def test_fake_server_that_is_never_stopped_does_not_keep_a_program_alive():
    program = "from draftsmith.client.testing import FakeServer\nserver = FakeServer()"
    assert run(program, FakeServer.__name__).returncode == 0
