"""draftsmith's decode engine without Triton: one request at a time, with the time of every update."""

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftsmith.model_repo.contract.params import GenerationRequest, SamplingParams
from draftsmith.model_repo.runtime.loading import load_engine
from draftsmith.model_repo.runtime.request import Update


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """``decode_seconds``: from the first token to the last; ``seconds``: from the request on."""

    token_ids: tuple[int, ...]
    seconds: float
    decode_seconds: float
    num_steps: int
    num_drafted: int
    num_accepted: int

    @property
    def decode_speed(self) -> float:
        """Tokens a second behind the first one."""
        return (len(self.token_ids) - 1) / self.decode_seconds


class LocalEngine:
    """A started engine."""

    def __init__(self, folder: Path, num_threads: int, num_slots: int = 1) -> None:
        self._engine = load_engine(folder, num_threads=num_threads, num_slots=num_slots)
        self._engine.start()

    def generate(self, *, input_ids: Any = None, messages: Any = None, **sampling: Any) -> Answer:
        """A whole answer; raises what the request failed with."""
        updates: list[tuple[float, Update]] = []
        done = threading.Event()

        def on_update(update: Update) -> None:
            updates.append((time.perf_counter(), update))
            if update.is_final:
                done.set()

        request = GenerationRequest(input_ids=input_ids, messages=messages, sampling=SamplingParams(**sampling))
        start = time.perf_counter()
        self._engine.submit(request, on_update)
        done.wait()
        last = updates[-1][1]
        if last.error is not None:
            raise last.error
        return Answer(
            token_ids=tuple(token for _, update in updates for token in update.token_ids),
            seconds=updates[-1][0] - start,
            decode_seconds=updates[-1][0] - updates[0][0],
            num_steps=last.num_target_steps,
            num_drafted=last.num_draft_tokens,
            num_accepted=last.num_accepted_draft_tokens,
        )

    def close(self) -> None:
        """Stop the loop."""
        self._engine.close()
