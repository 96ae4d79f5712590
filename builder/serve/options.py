"""How a repository is served: frozen facts, checked once."""

import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from ..errors import UsageError
from ..ranges import check_range

MAX_WAIT_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """``models`` empty means every model of the repository; a port of 0 is replaced by a free one.

    ``num_threads``: threads a model computes with, None for what its package says. ``triton``: the server program, None
    to look for one. ``stop_grace_s``: how long running requests may go on after a signal.
    """

    repository: Path
    models: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    num_threads: int | None = None
    triton: Path | None = None
    log_file: Path | None = None
    ready_timeout_s: float = 300.0
    stop_grace_s: float = 10.0

    def __post_init__(self) -> None:
        ports = {"--http-port": self.http_port, "--grpc-port": self.grpc_port, "--metrics-port": self.metrics_port}
        for name, port in ports.items():
            if not 0 <= port <= 65535:
                raise UsageError(name, expected="a port from 0 to 65535", found=str(port))
            twins = [other for other, same in ports.items() if same == port and other != name]
            if port and twins:
                raise UsageError(name, expected=f"another port than {twins[0]}", found=str(port))
        if self.num_threads is not None:
            check_range("--threads", self.num_threads, 1, 1024)
        for name, seconds in (("--ready-timeout", self.ready_timeout_s), ("--grace", self.stop_grace_s)):
            if not 0 <= seconds <= MAX_WAIT_S:  # false for NaN too
                raise UsageError(name, expected=f"0 to {MAX_WAIT_S:,} seconds", found=f"{seconds:g}")

    @property
    def family(self) -> socket.AddressFamily:
        """IPv4 or IPv6, as the host is written."""
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    def with_free_ports(self) -> Self:
        """The same options with every port of 0 replaced by one that is free now."""
        holders: list[socket.socket] = []
        chosen: dict[str, int] = {}
        try:
            for name in ("http_port", "grpc_port", "metrics_port"):
                if getattr(self, name) == 0:
                    holder = socket.socket(self.family)
                    holders.append(holder)
                    holder.bind((self.host, 0))
                    chosen[name] = holder.getsockname()[1]
        except OSError as error:
            raise UsageError("--host", expected="an address of this machine", found=repr(self.host)) from error
        finally:
            for holder in holders:
                holder.close()
        return replace(self, **chosen)  # type: ignore[arg-type]
