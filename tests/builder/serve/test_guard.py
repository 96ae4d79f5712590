"""A server does not outlive the process that started it, however that one ends."""

import os
import select
import signal
import subprocess
import sys
import textwrap

import pytest
from draftsmith.builder.serve.guard import OrphanGuard

STARTER = """
    import subprocess, sys, threading
    from pathlib import Path
    from draftsmith.builder.serve.guard import OrphanGuard

    def start():
        server = subprocess.Popen(["sleep", "600"], start_new_session=True)
        guard = OrphanGuard(server.pid, run_folder=Path(sys.argv[1]), shm_prefix=Path(sys.argv[2]))
        print(server.pid, guard.pid, flush=True)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    sys.stdin.read()
"""


def has_ended(pid_file):
    """True once the process of the pidfd is gone; the limit only bounds a failure."""
    return bool(select.select([pid_file], [], [], 20)[0])


@pytest.fixture
def server():
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_a_server_and_its_files_go_when_its_starter_is_killed(tmp_path):
    run_folder = tmp_path / "run folder"
    run_folder.mkdir()
    (tmp_path / "shm_1_a").touch()
    (tmp_path / "other").touch()
    command = [sys.executable, "-c", textwrap.dedent(STARTER), str(run_folder), str(tmp_path / "shm_1_")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        server, guard = [os.pidfd_open(int(pid)) for pid in starter.stdout.readline().split()]
        # The thread that started the server has ended already: that alone must not end the server.
        assert not select.select([server], [], [], 0)[0]
        starter.send_signal(signal.SIGKILL)
        assert has_ended(server) and has_ended(guard)
        os.close(server)
        os.close(guard)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other"]


def test_a_closed_guard_leaves_everything(tmp_path, server):
    (tmp_path / "run").mkdir()
    OrphanGuard(server.pid, run_folder=tmp_path / "run", shm_prefix=tmp_path / "ru").close()
    assert server.poll() is None and (tmp_path / "run").is_dir()
