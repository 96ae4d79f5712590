"""One running Triton server: start and wait for its models, watch it, end it with everything that it left behind."""

import contextlib
import logging
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from ..errors import ServeError
from ..progress import Progress, Silent
from .command import server_command, server_environment
from .control import ModelControl
from .failure import failure_reason
from .guard import OrphanGuard
from .locate import find_triton
from .options import ServeOptions
from .preflight import SHM, check_all
from .revive import Reviver
from .stubs import find_stubs

logger = logging.getLogger(__name__)

_POLL_S = 0.1
_WATCH_S = 1.0
_KILL_WAIT_S = 5.0


class ServerProcess:
    """A Triton server as a context manager: inside the block its models answer, afterwards nothing of it is left.

    ``start`` raises ``ServeError`` (or ``BackendError`` without a server program) with the reason; ``wait`` blocks
    until the server ends and revives models whose process died; ``stop`` may be called twice.
    """

    def __init__(self, options: ServeOptions, progress: Progress | None = None) -> None:
        self.options = options.with_free_ports()
        self.models: tuple[str, ...] = ()
        self.log_path: Path | None = None
        self._progress = progress or Silent()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: OrphanGuard | None = None
        self._run_folder: Path | None = None
        self._shm_prefix = f"draftsmith_{os.getpid()}_{secrets.token_hex(4)}_"

    @property
    def http_url(self) -> str:
        """``host:port`` of the HTTP endpoint."""
        return f"{self._client_host}:{self.options.http_port}"

    @property
    def grpc_url(self) -> str:
        """``host:port`` of the gRPC endpoint."""
        return f"{self._client_host}:{self.options.grpc_port}"

    @property
    def metrics_url(self) -> str:
        """``host:port`` of the Prometheus metrics."""
        return f"{self._client_host}:{self.options.metrics_port}"

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def _client_host(self) -> str:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.options.host, self.options.host)  # noqa: S104
        return f"[{host}]" if ":" in host else host

    def start(self) -> None:
        """Check everything, start the server and return when every model is ready."""
        remove_dead_shm()
        self.models = tuple(check_all(self.options))
        triton = find_triton(self.options.triton)
        self._run_folder = Path(tempfile.mkdtemp(prefix="draftsmith-serve-"))
        self.log_path = self.options.log_file or self._run_folder / "triton.log"
        try:
            command = server_command(triton, self.options, self.models, self._run_folder, self._shm_prefix)
            logger.debug("starting %s", " ".join(command))
            with (
                _open_log(self.log_path) as log,
                self._progress.stage(f"start Triton with {', '.join(self.models)}"),
            ):
                self._process = subprocess.Popen(
                    command,
                    env=server_environment(os.environ, triton, self.options.num_threads),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._guard = OrphanGuard(
                    self._process.pid, run_folder=self._run_folder, shm_prefix=SHM / self._shm_prefix
                )
                self._wait_until_ready()
        except OSError as error:
            self.stop()
            raise ServeError(
                "tritonserver", expected="to start", found=str(error), where=str(triton.program)
            ) from error
        except BaseException:
            self.stop()
            raise

    def _wait_until_ready(self) -> None:
        control = ModelControl(self.http_url)
        waiting = list(self.models)
        deadline = time.monotonic() + self.options.ready_timeout_s
        while True:
            waiting = [name for name in waiting if not control.is_ready(name)]
            if not waiting:
                return
            self._raise_if_ended()
            if time.monotonic() > deadline:
                raise ServeError(
                    waiting[0],
                    expected=f"ready within {self.options.ready_timeout_s:g} s",
                    found=failure_reason(self._log_text()) or "no answer",
                    action="Allow more with --ready-timeout",
                )
            time.sleep(_POLL_S)

    def wait(self) -> None:
        """Return when ``stop`` ended the server; raise ``ServeError`` when it ended itself or a model keeps dying."""
        reviver = Reviver(ModelControl(self.http_url).reload)
        while (process := self._process) is not None:
            try:
                process.wait(timeout=_WATCH_S)
            except subprocess.TimeoutExpired:
                reviver.check(self.models, find_stubs(process.pid))
            else:
                self._raise_if_ended()

    def _raise_if_ended(self) -> None:
        code = self._process.poll() if self._process else None
        if code is None:
            return
        if code < 0:
            reason = f"the server killed by signal {signal.Signals(-code).name}"
        else:
            reason = failure_reason(self._log_text()) or f"the server ended with exit code {code}"
        raise ServeError(
            "Triton",
            expected="to serve " + ", ".join(self.models),
            found=reason,
            action="The server's log has more: start again with --log FILE" if not self.options.log_file else "",
            where=str(self.options.log_file or ""),
        )

    def _log_text(self) -> str:
        try:
            return self.log_path.read_text(encoding="utf-8", errors="replace") if self.log_path else ""
        except OSError:
            return ""

    def stop(self) -> None:
        """End the server: SIGTERM, after the grace time SIGKILL; then its stubs, shared memory and temporary files.

        An exception on the way (a second Ctrl-C) shortens the grace time to nothing.
        """
        process, self._process = self._process, None
        try:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=self.options.stop_grace_s)
        except subprocess.TimeoutExpired:
            logger.warning("Triton did not end within %g s, killing it", self.options.stop_grace_s)
        finally:
            if process is not None:
                _kill_group(process)
            for leftover in SHM.glob(self._shm_prefix + "*"):
                leftover.unlink(missing_ok=True)
            if self._run_folder is not None:
                shutil.rmtree(self._run_folder, ignore_errors=True)
            guard, self._guard = self._guard, None
            if guard is not None:
                guard.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _open_log(path: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except OSError as error:
        raise ServeError(
            "--log",
            expected="a file that can be written",
            found=(error.strerror or str(error)).lower(),
            where=str(path),
        ) from error


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill what is left of the server's own process group (its stubs outlive it)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=_KILL_WAIT_S)


def remove_dead_shm() -> None:
    """Remove shared memory of servers whose starter was killed (the file name holds its process id)."""
    for leftover in SHM.glob("draftsmith_*"):
        pid = leftover.name.split("_")[1]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            leftover.unlink(missing_ok=True)
