"""A stand-in for the decode engine: answers by the words of its prompt, without a model. Also loaded by real Triton.

``count N``: N updates and the end. ``wait``: nothing until cancelled. ``talk``: updates until cancelled.
``active``: how many others run. ``fail``: one update, then an error. ``long`` and ``crash``: submit raises.
``die``: the engine dies. ``echo``: the request as JSON.
"""

import itertools
import json
import threading
import time
from dataclasses import asdict

from draftsmith.model_repo.contract.errors import ErrorCode, RequestError
from draftsmith.model_repo.runtime.request import RequestHandle, Update


def make_update(text="", token_ids=(), finish_reason="", *, is_final=False, **more):
    counts = dict.fromkeys(
        ("num_input_tokens", "num_output_tokens", "num_target_steps", "num_draft_tokens", "num_accepted_draft_tokens"),
        0,
    )
    return Update(
        text=text, token_ids=tuple(token_ids), finish_reason=finish_reason, is_final=is_final, **{**counts, **more}
    )


class ToyEngine:
    """One thread a request; ``num_active`` is the number of busy slots."""

    def __init__(self, step_s=0.001):
        self.is_ready = False
        self.step_s = step_s
        self._ids = itertools.count()
        self._active = set()
        self._lock = threading.Lock()

    @property
    def num_active(self):
        return len(self._active)

    def start(self):
        self.is_ready = True

    def submit(self, request, on_update):
        words = (request.text or "echo").split()
        if not self.is_ready:
            raise RequestError("engine", code=ErrorCode.UNHEALTHY, expected="a running loop", found="a dead one")
        if words[0] == "crash":
            raise ZeroDivisionError("toy")
        if words[0] == "long":
            raise RequestError("prompt", code=ErrorCode.TOO_LONG, expected="at most 8 tokens", found="9")
        cancelled = threading.Event()
        key = next(self._ids)
        with self._lock:
            self._active.add((key, cancelled))

        def run():
            self._run(words, request, cancelled, on_update)
            with self._lock:
                self._active.discard((key, cancelled))

        threading.Thread(target=run, daemon=True).start()
        return RequestHandle(key, cancelled.set)

    def close(self):
        self.is_ready = False
        with self._lock:
            active = list(self._active)
        for _, cancelled in active:
            cancelled.set()
        while self._active:
            time.sleep(0.001)

    def _run(self, words, request, cancelled, on_update):
        kind = words[0]
        if kind == "echo":
            on_update(make_update(json.dumps(asdict(request)), (1,), "end_id", is_final=True, num_output_tokens=1))
        elif kind == "count":
            self._count(int(words[1]), cancelled, on_update)
        elif kind == "wait":
            cancelled.wait()
            on_update(make_update(finish_reason="cancelled", is_final=True))
        elif kind == "talk":
            self._count(10**9, cancelled, on_update)
        elif kind == "active":
            on_update(make_update(str(self.num_active - 1), (1,), "end_id", is_final=True))
        elif kind == "fail":
            on_update(make_update("a", (1,)))
            on_update(make_update(is_final=True, error=RequestError("logits", code=ErrorCode.INTERNAL, found="NaN")))
        elif kind == "die":
            self.is_ready = False
            error = RequestError("engine", code=ErrorCode.UNHEALTHY, expected="a running loop", found="a dead one")
            on_update(make_update(is_final=True, error=error))

    def _count(self, most, cancelled, on_update):
        for number in range(most):
            if cancelled.wait(self.step_s):
                on_update(make_update(finish_reason="cancelled", is_final=True, num_output_tokens=number))
                return
            on_update(make_update(f"{number} ", (number,)))
        on_update(
            make_update(
                "",
                (),
                "length",
                is_final=True,
                num_input_tokens=2,
                num_output_tokens=most,
                num_target_steps=most,
                num_draft_tokens=4,
                num_accepted_draft_tokens=3,
            )
        )
