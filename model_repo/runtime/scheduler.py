"""Who is served in the next turn: the queue, the slots, chunks of prompts. Holds no tensors.

``submit`` and ``cancel`` come from any thread; the rest is the loop's.
"""

import threading
from collections import deque
from dataclasses import dataclass

from draftsmith.model_repo.contract.errors import ErrorCode, RequestError

from .kv_slots import KvSlots, SlotMove
from .sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptChunk:
    """``length`` tokens of a prompt from ``start`` on. Chunks start at multiples of the chunk length: load changes
    when a chunk is computed, never where it ends, so a prompt's bits do not depend on its neighbours."""

    sequence: Sequence
    start: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPlan:
    """One turn of the loop: who left by cancellation, cache moves to make first, then one call each for prompts and
    for running sequences (ordered by slot)."""

    cancelled: list[Sequence]
    moves: list[SlotMove[Sequence]]
    prefill: list[PromptChunk]
    decode: list[Sequence]


class Scheduler:
    """First come, first served, over a bounded queue and the session's slots."""

    def __init__(self, *, num_slots: int, capacity: int, queue_len: int, prefill_chunk_len: int) -> None:
        self._slots: KvSlots[Sequence] = KvSlots(num_slots)
        self._capacity = capacity
        self._queue_len = queue_len
        self._chunk_len = prefill_chunk_len
        self._waiting: deque[Sequence] = deque()
        self._active: list[Sequence] = []  # own a slot, in order of arrival
        self._changed = threading.Condition()
        self._closing_error: RequestError | None = None
        self.num_submitted = 0

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_active(self) -> int:
        return len(self._active)

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence.

        Raises:
            RequestError: the queue is full (``OVERLOADED``) or closed (its error).
        """
        with self._changed:
            if self._closing_error is not None:
                raise self._closing_error.with_traceback(None)  # else every refusal would add its frames to it
            free = self._slots.num_slots - len(self._active)
            if len(self._waiting) >= self._queue_len + free:
                raise RequestError(
                    "queue",
                    code=ErrorCode.OVERLOADED,
                    expected=f"at most {self._queue_len} waiting requests",
                    found="a full queue",
                    action="Try again later",
                )
            self._waiting.append(sequence)
            self.num_submitted += 1
            self._changed.notify()

    def cancel(self, sequence: Sequence) -> None:
        """Ask for a sequence's end at the next turn."""
        with self._changed:
            sequence.is_cancelled = True
            self._changed.notify()

    def wait_for_work(self, timeout: float | None = None) -> bool:
        """Block until there is something to serve or the queue is closed; True where there is something."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._active or self._closing_error, timeout)
            return bool(self._waiting or self._active)

    def plan(self) -> TurnPlan:
        """Drop who was cancelled, give free slots to who waits, close gaps, pick this turn's rows."""
        with self._changed:
            cancelled = [s for s in (*self._active, *self._waiting) if s.is_cancelled]
            for sequence in cancelled:
                self._remove(sequence)
            while self._waiting:
                slot = self._slots.claim(self._waiting[0])
                if slot is None:
                    break
                sequence = self._waiting.popleft()
                sequence.slot = slot
                self._active.append(sequence)
            moves = self._slots.close_gaps()
            for move in moves:
                move.owner.slot = move.destination
            decode = sorted((s for s in self._active if s.is_prefilled), key=lambda s: s.slot)
            return TurnPlan(cancelled=cancelled, moves=moves, prefill=self._pick_chunks(), decode=decode)

    def release(self, sequence: Sequence) -> None:
        """An ended sequence leaves; its slot is free for the next turn."""
        with self._changed:
            self._remove(sequence)

    def refuse(self, error: RequestError) -> None:
        """From now on ``submit`` raises ``error``, and nobody waits for work any more."""
        with self._changed:
            self._closing_error = error
            self._changed.notify_all()

    def take_all(self) -> list[Sequence]:
        """Give up every sequence that is here. Only while no turn is in progress."""
        with self._changed:
            left = [*self._active, *self._waiting]
            for sequence in left:
                self._remove(sequence)
            return left

    def _remove(self, sequence: Sequence) -> None:
        if sequence.slot >= 0:
            self._slots.release(sequence.slot)
            sequence.slot = -1
            self._active.remove(sequence)
        else:
            self._waiting.remove(sequence)

    def _pick_chunks(self) -> list[PromptChunk]:
        """The oldest unfinished prompt's next chunk, and others' as long as the padded call stays within one chunk and
        within everybody's capacity."""
        chunks: list[PromptChunk] = []
        longest = latest = 0
        for sequence in self._active:
            if sequence.is_prefilled:
                continue
            length = min(self._chunk_len, sequence.prompt_len - sequence.num_prefilled)
            start = sequence.num_prefilled
            padded, end = max(longest, length), max(longest, length) + max(latest, start)
            if chunks and (padded * (len(chunks) + 1) > self._chunk_len or end > self._capacity):
                continue
            longest, latest = padded, max(latest, start)
            chunks.append(PromptChunk(sequence=sequence, start=start, length=length))
        return sorted(chunks, key=lambda c: c.sequence.slot)
