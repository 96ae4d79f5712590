"""Asks a running Triton over HTTP: is a model ready, load it again. Standard library only."""

import urllib.error
import urllib.request
from http import HTTPStatus
from urllib.parse import quote

_READY_TIMEOUT_S = 2.0
_LOAD_TIMEOUT_S = 300.0


class ModelControl:
    """The few calls of Triton's HTTP interface that supervision needs. ``url``: ``host:port``."""

    def __init__(self, url: str) -> None:
        self._url = url

    def is_ready(self, model: str) -> bool:
        """True where the server answers that the model is ready; a server that does not answer yet is not."""
        return self._call(f"/v2/models/{quote(model)}/ready", None, _READY_TIMEOUT_S)

    def reload(self, model: str) -> bool:
        """Unload the model and load it again; True where it is back."""
        base = f"/v2/repository/models/{quote(model)}"
        self._call(base + "/unload", b"{}", _LOAD_TIMEOUT_S)
        return self._call(base + "/load", b"{}", _LOAD_TIMEOUT_S)

    def _call(self, path: str, body: bytes | None, timeout: float) -> bool:
        request = urllib.request.Request(f"http://{self._url}{path}", data=body)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
                return bool(answer.status == HTTPStatus.OK)
        except (urllib.error.URLError, OSError):
            return False
