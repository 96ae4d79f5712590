"""What the two clients share besides procedures: their settings, and how a request is prepared. Pure."""

import math
from collections.abc import Mapping
from typing import Any

from .connection import Connection, RetryPolicy, TlsOptions
from .errors import ClientError, InvalidRequest
from .generation import Generation
from .options import Prompt, build_request


class ClientCore:
    """Checked settings of a client; see ``Client`` for their meaning."""

    def __init__(
        self,
        url: str,
        *,
        model: str | None,
        tls: TlsOptions | None,
        headers: Mapping[str, str] | None,
        timeout: float | None,
        retry: RetryPolicy,
    ) -> None:
        self.connection = Connection.parse(url, tls, headers)
        self.timeout = check_timeout(timeout)
        self.retry = retry
        self.model = model
        self.is_closed = False
        if model is not None and (not isinstance(model, str) or not model):
            raise InvalidRequest("model", expected="a name or None", found=repr(model))

    def prepare(self, prompt: Prompt, options: Mapping[str, Any], *, stream: bool, timeout: float | None) -> Generation:
        """A checked request, not sent yet. ``timeout`` None takes the client's."""
        request = build_request(prompt, options, stream=stream)
        limit = self.timeout if timeout is None else check_timeout(timeout)
        return Generation(request, timeout=limit, retry=self.retry, where=self.connection.target)

    def closed_error(self) -> ClientError:
        """The client was closed before the call."""
        return ClientError("client", expected="an open one", found="a closed one", where=self.connection.target)

    def check_open(self) -> None:
        """Raise where the client was closed."""
        if self.is_closed:
            raise self.closed_error()


def check_timeout(timeout: float | None) -> float | None:
    """Seconds, more than 0; None and infinity mean no limit."""
    if timeout is None or timeout == math.inf:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise InvalidRequest("timeout", expected="seconds above 0, or None", found=repr(timeout))
    return float(timeout)
