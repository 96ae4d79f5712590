"""The requests of one Triton model between Triton and the engine: take them, send their answers, see who has left.

One thread sends everything, so the decode loop never waits for Triton; where it falls behind, a request's waiting
updates leave as one response. Before each response, and every ``poll_s`` for requests that wait or prefill, it asks
Triton whether the client is still there (Triton does not tell by itself).
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from draftsmith.model_repo.contract.errors import ErrorCode, RequestError
from draftsmith.model_repo.contract.params import GenerationRequest

from .request import OnUpdate, RequestHandle, Update
from .triton_codec import decode_request, encode_error, encode_update, join_updates

logger = logging.getLogger(__name__)
DEFAULT_POLL_S = 0.02
_IDLE_POLL_S = 1.0


class Engine(Protocol):
    """What is needed of ``DecodeEngine``."""

    @property
    def is_ready(self) -> bool: ...
    def submit(self, request: GenerationRequest, on_update: OnUpdate) -> RequestHandle: ...
    def close(self) -> None: ...


class _Running:
    """One request: Triton's sender, and the engine's handle once there is one."""

    def __init__(self, sender: Any) -> None:
        self.sender = sender
        self.handle: RequestHandle | None = None
        self.is_cancelled = False
        self.is_over = False


class TritonRequests:
    """Hands requests to ``engine`` and its updates to Triton: exactly one final response each, nothing after it.

    ``on_dead`` is called once, in a thread of its own, when the engine is found dead.
    """

    def __init__(
        self, engine: Engine, pb_utils: Any, *, on_dead: Callable[[], None], poll_s: float = DEFAULT_POLL_S
    ) -> None:
        self._engine = engine
        self._pb_utils = pb_utils
        self._on_dead: Callable[[], None] | None = on_dead
        self._poll_s = poll_s
        self._updates: queue.SimpleQueue[tuple[_Running, Update | None] | None] = queue.SimpleQueue()
        self._running: set[_Running] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._send_all, name="draftsmith-send", daemon=True)
        self._thread.start()

    def accept(self, request: Any) -> None:
        """Queue a ``pb_utils.InferenceRequest``; never raises, answers with an error instead."""
        running = _Running(request.get_response_sender())
        try:
            decoded = decode_request(request)
            running.handle = self._engine.submit(decoded, lambda update: self._updates.put((running, update)))
        except RequestError as error:
            self._refuse(running, error)
        except Exception as error:
            logger.exception("a request failed before it was queued")
            self._refuse(running, RequestError("request", code=ErrorCode.INTERNAL, found=repr(error)))
        else:
            with self._lock:
                if not running.is_over:  # its whole answer may have been sent already
                    self._running.add(running)
            self._updates.put((running, None))  # wakes the thread: there is a client to watch

    def close(self) -> None:
        """Close the engine, send what it still says, stop the thread."""
        self._on_dead = None
        self._engine.close()
        self._updates.put(None)
        self._thread.join()

    def _send_all(self) -> None:
        next_poll = 0.0
        is_open = True
        while is_open:
            updates, is_open = self._take_updates()
            for running, joined in updates.items():
                for update in join_updates(joined):
                    self._send_update(running, update)
                if joined[-1].error is not None:
                    next_poll = 0.0  # the engine may have died
            if time.monotonic() >= next_poll:
                self._poll()
                next_poll = time.monotonic() + self._poll_s

    def _take_updates(self) -> tuple[dict[_Running, list[Update]], bool]:
        """Everything that is queued, by request, after waiting for some; false once ``close`` was called."""
        updates: dict[_Running, list[Update]] = {}
        timeout = self._poll_s if self._running else _IDLE_POLL_S
        try:
            item = self._updates.get(timeout=timeout)
            while item is not None:
                running, update = item
                if update is not None:
                    updates.setdefault(running, []).append(update)
                item = self._updates.get_nowait()
        except queue.Empty:
            return updates, True
        return updates, False

    def _poll(self) -> None:
        """Cancel the requests whose clients have left; report an engine that is dead."""
        with self._lock:
            running = list(self._running)
        for request in running:
            self._cancel_if_left(request)
        if self._on_dead is not None and not self._engine.is_ready:
            on_dead, self._on_dead = self._on_dead, None
            threading.Thread(target=on_dead, name="draftsmith-dead", daemon=True).start()

    def _send_update(self, running: _Running, update: Update) -> None:
        if not update.is_final:
            self._cancel_if_left(running)
        try:
            response = encode_update(update, self._pb_utils)
        except Exception as error:
            logger.exception("an update could not be encoded")
            self._cancel(running)
            self._refuse(running, RequestError("response", code=ErrorCode.INTERNAL, found=repr(error)))
            return
        self._send(running, response, is_final=update.is_final)

    def _refuse(self, running: _Running, error: RequestError) -> None:
        self._send(running, encode_error(error, self._pb_utils), is_final=True)

    def _send(self, running: _Running, response: Any, *, is_final: bool) -> None:
        with self._lock:
            if running.is_over:
                return
            if is_final:
                running.is_over = True
                self._running.discard(running)
        flags = self._pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if is_final else 0
        try:
            running.sender.send(response, flags=flags)
        except Exception:
            logger.exception("a response could not be sent")
            self._cancel(running)

    def _cancel_if_left(self, running: _Running) -> None:
        if not running.is_cancelled and not running.is_over and running.sender.is_cancelled():
            self._cancel(running)

    def _cancel(self, running: _Running) -> None:
        if running.handle is not None:
            running.is_cancelled = True
            running.handle.cancel()
