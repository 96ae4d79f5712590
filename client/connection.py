"""How to reach a server: address, TLS, headers, channel options, retries. Pure; opens nothing."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import grpc

from .errors import InvalidRequest

DEFAULT_PORT = 8001
# Triton refuses pings more often than every 5 minutes; these find a dead network without being refused.
_KEEPALIVE_MS = 310_000
_KEEPALIVE_TIMEOUT_MS = 20_000
_CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """PEM files (or their content) for TLS. Nothing given: the system's root certificates, no client certificate.

    ``server_name`` is the name to check in the server's certificate where it is not the host of the address.
    """

    root_certificates: Path | bytes | None = None
    private_key: Path | bytes | None = field(default=None, repr=False)
    certificate_chain: Path | bytes | None = None
    server_name: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """gRPC's form of it. ``InvalidRequest`` where a file cannot be read or half of a pair is missing."""
        if (self.private_key is None) != (self.certificate_chain is None):
            raise InvalidRequest("tls", expected="private_key and certificate_chain together", found="one of them")
        return grpc.ssl_channel_credentials(
            root_certificates=_read_pem("root_certificates", self.root_certificates),
            private_key=_read_pem("private_key", self.private_key),
            certificate_chain=_read_pem("certificate_chain", self.certificate_chain),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a request is tried when the server is *unavailable* and no token has arrived (never afterwards).

    ``attempts`` counts the first one. The n-th wait is ``first_delay_s * 2**n``, at most ``max_delay_s``, less up to
    half of it at random, so that many clients do not come back together.
    """

    attempts: int = 3
    first_delay_s: float = 0.2
    max_delay_s: float = 5.0

    def delay_s(self, failures: int) -> float | None:
        """Seconds to wait after so many failures (1 or more), or None to give up."""
        if failures >= self.attempts:
            return None
        longest = min(self.first_delay_s * 2.0 ** (failures - 1), self.max_delay_s)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter needs no secrecy


NO_RETRY = RetryPolicy(attempts=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Everything a client needs to open a channel, checked."""

    target: str
    tls: TlsOptions | None
    headers: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, url: str, tls: TlsOptions | None, headers: Mapping[str, str] | None) -> "Connection":
        """Check an address (``host:port``, ``grpc://host:port``, ``grpcs://host:port``), TLS options and headers."""
        if not isinstance(url, str) or not url:
            raise InvalidRequest("url", expected="host:port", found=repr(url))
        scheme, _, rest = url.rpartition("://")
        if scheme not in ("", "grpc", "grpcs"):
            raise InvalidRequest(
                "url",
                expected="host:port, grpc://host:port or grpcs://host:port",
                found=url,
                action=f"Give Triton's gRPC port (usually {DEFAULT_PORT})",
            )
        if tls is not None and scheme == "grpc":
            raise InvalidRequest("url", expected="grpcs:// with TLS options", found=url)
        if scheme == "grpcs" and tls is None:
            tls = TlsOptions()
        return cls(target=_host_and_port(rest, url), tls=tls, headers=_check_headers(headers or {}))

    @property
    def channel_options(self) -> list[tuple[str, int | str]]:
        """Options of the gRPC channel."""
        options: list[tuple[str, int | str]] = list(_CHANNEL_OPTIONS)
        if self.tls is not None and self.tls.server_name is not None:
            options.append(("grpc.ssl_target_name_override", self.tls.server_name))
        return options


def _host_and_port(address: str, url: str) -> str:
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.path or parts.query or parts.username or (port is None and address.endswith(":")):
        raise InvalidRequest("url", expected="host:port", found=url)
    bracketed = f"[{host}]" if ":" in host else host
    return f"{bracketed}:{DEFAULT_PORT if port is None else port}"


def _check_headers(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name or not value.isascii():
            raise InvalidRequest("headers", expected="ASCII strings", found=repr(name))
    return tuple((name.lower(), value) for name, value in headers.items())


def _read_pem(name: str, source: Path | str | bytes | None) -> bytes | None:
    if source is None or isinstance(source, bytes):
        return source
    try:
        return Path(source).read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidRequest(name, expected="a readable PEM file", found=reason, where=str(source)) from error
