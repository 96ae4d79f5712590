"""Ends a server whose starter was killed: nobody else would, and it would hold its ports and memory for ever."""

import contextlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

_CLOSE_WAIT_S = 5.0
# One line comes where the server was ended properly; the end of the pipe instead means that the starter is gone.
_SCRIPT = """
read -r line && exit 0
kill -s KILL -- "-$1" 2>/dev/null
rm -rf -- "$2"
prefix=$3
rm -f -- "$prefix"*
"""


class OrphanGuard:
    """A small shell process that waits on a pipe from this process; when this one dies, it kills the process group.

    (PR_SET_PDEATHSIG would follow the thread that started the server, and would not reach the server's stubs.)

    Arguments:
        group: the process group to kill. ``run_folder``: removed then. ``shm_prefix``: files of this prefix, too.
    """

    def __init__(self, group: int, *, run_folder: Path, shm_prefix: Path) -> None:
        reader, self._writer = os.pipe()
        try:
            self._process = subprocess.Popen(
                self._command(group, run_folder, shm_prefix),
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            os.close(self._writer)
            raise
        finally:
            os.close(reader)

    @staticmethod
    def _command(group: int, run_folder: Path, shm_prefix: Path) -> Sequence[str]:
        return ["/bin/sh", "-c", _SCRIPT, "draftsmith-guard", str(group), str(run_folder), str(shm_prefix)]

    @property
    def pid(self) -> int:
        """The guard's own process id."""
        return self._process.pid

    def close(self) -> None:
        """Call when the server has ended: the guard leaves without doing anything."""
        with contextlib.suppress(OSError):
            os.write(self._writer, b"done\n")
        os.close(self._writer)
        try:
            self._process.wait(timeout=_CLOSE_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
