"""The decode engine: the order of a turn, and the thread that turns. The parts are called from here alone."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass

from draftsmith.model_repo.contract.errors import ErrorCode, RequestError
from draftsmith.model_repo.contract.params import GenerationRequest
from draftsmith.model_repo.contract.tensors import FinishReason

from .adaptive import AdaptiveDraftLength, DraftLengthPolicy
from .admission import Admission
from .cost_model import CostModel
from .drafter import Draft, Drafter, DraftQuery, NgramDrafter
from .request import OnUpdate, RequestHandle
from .scheduler import PromptChunk, Scheduler
from .sequence import Sequence
from .sessions.base import FloatArray, TargetSession
from .stats import Counters, EngineStats
from .verifier import Verifier

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What the loop is allowed. ``queue_len``: requests that may wait for a slot. ``prefill_chunk_len``: most prompt
    tokens a turn takes. ``max_draft_len``: most tokens drafted a row and step.
    """

    queue_len: int = 256
    prefill_chunk_len: int = 128
    max_draft_len: int = 15


class DecodeEngine:
    """Serves requests over the slots of one session. ``submit``, ``stats`` and ``close`` may come from any thread.

    Either ``start`` runs the loop in a thread of its own, or the caller calls ``step`` (tests do).

    Arguments:
        session: the loaded target; the engine owns it and closes it.
        admission: makes sequences of requests.
        drafter, policy: who guesses and how long guesses may be.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        session: TargetSession,
        admission: Admission,
        config: EngineConfig,
        *,
        drafter: Drafter | None = None,
        policy: DraftLengthPolicy | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._session = session
        self._admission = admission
        self._config = config
        self._drafter = drafter or NgramDrafter()
        self._policy = policy or AdaptiveDraftLength(CostModel())
        self._clock = clock
        self._verifier = Verifier(session)
        self._scheduler = Scheduler(
            num_slots=session.num_slots,
            capacity=session.capacity,
            queue_len=config.queue_len,
            prefill_chunk_len=min(config.prefill_chunk_len, session.max_query_len),
        )
        self._counters = Counters()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._has_failed = False

    @property
    def is_ready(self) -> bool:
        """True between ``start`` and ``close`` while the loop is alive."""
        return self._thread is not None and self._thread.is_alive() and not self._has_failed

    def start(self) -> None:
        """Start the loop's thread."""
        self._thread = threading.Thread(target=self._run, name="draftsmith-decode", daemon=True)
        self._thread.start()

    def submit(self, request: GenerationRequest, on_update: OnUpdate) -> RequestHandle:
        """Queue a request. Tokenises in the caller's thread and returns at once.

        With ``request.stream`` false there is one update, the final one.

        Raises:
            RequestError: it cannot be served (invalid, too long, queue full, engine not ready); then ``on_update`` is
                never called. After a normal return there is exactly one final update.
        """
        sequence = self._admission.admit(request, on_update)
        self._scheduler.submit(sequence)
        return RequestHandle(sequence.request_id, lambda: self._scheduler.cancel(sequence))

    def stats(self) -> EngineStats:
        """Counters and times so far."""
        return self._counters.snapshot(
            num_slots=self._session.num_slots,
            num_active=self._scheduler.num_active,
            num_waiting=self._scheduler.num_waiting,
            num_requests=self._scheduler.num_submitted,
        )

    def close(self) -> None:
        """End every request (final update, ``cancelled``), stop the loop and close the session.

        May be called twice, but not from a callback.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        self._scheduler.refuse(_refusal("the engine is closed"))
        if self._thread is not None:
            self._thread.join()
        for sequence in self._scheduler.take_all():
            sequence.finish(FinishReason.CANCELLED)
            self._send(sequence)
        self._session.close()

    def step(self) -> bool:
        """One turn: plan -> [prefill] -> draft -> verify -> accept and commit -> stream. False where nobody is here."""
        plan = self._scheduler.plan()
        for sequence in plan.cancelled:
            sequence.finish(FinishReason.CANCELLED)
            self._counters.num_cancelled += 1
            self._send(sequence)
        for move in plan.moves:
            self._session.copy_slot(move.source, move.destination, move.owner.cached_len)
        if plan.prefill:
            with self._timed("prefill"):
                logits = self._verifier.prefill(plan.prefill)  # [B, V]
                started = self._take_first_tokens(plan.prefill, logits)
            self._stream(started)
        if plan.decode:
            with self._timed("draft"):
                drafts = self._draft(plan.decode)
            begin = self._clock()
            with self._timed("verify"):
                logits = self._verifier.score(plan.decode, drafts)  # [B, 1 + longest draft, V]
            with self._timed("accept"):
                self._accept(plan.decode, drafts, logits)
            self._policy.observe_step(len(plan.decode), logits.shape[1], (self._clock() - begin) * 1e3)
            self._stream(plan.decode)
        return bool(plan.prefill or plan.decode or plan.cancelled)

    def _take_first_tokens(self, chunks: Seq[PromptChunk], logits: FloatArray) -> list[Sequence]:
        """The first token of each prompt that is complete now."""
        started = []
        for chunk, row in zip(chunks, logits, strict=True):
            self._counters.num_prompt_tokens += chunk.length
            if chunk.sequence.is_prefilled:
                chunk.sequence.take_block(row[None], [])
                self._counters.num_output_tokens += chunk.sequence.num_output_tokens
                started.append(chunk.sequence)
        return started

    def _draft(self, rows: Seq[Sequence]) -> list[Draft]:
        """What each row's next tokens may be, cut to the length that pays."""
        room = min(self._session.max_query_len, self._session.capacity - max(row.cached_len for row in rows)) - 1
        queries = [DraftQuery(slot=row.slot, tokens=row.tokens, limit=self._draft_limit(row, room)) for row in rows]
        drafts = self._drafter.propose(queries)
        lengths = self._policy.choose(drafts, [row.acceptance for row in rows])
        return [draft.cut(length) for draft, length in zip(drafts, lengths, strict=True)]

    def _draft_limit(self, row: Sequence, room: int) -> int:
        """Tokens that may be drafted: never more than could still be emitted besides the bonus token."""
        if not row.params.speculate:
            return 0
        asked = row.params.max_draft_tokens
        most = self._config.max_draft_len if asked is None else asked
        return min(most, row.num_tokens_left - 1, room)

    def _accept(self, rows: Seq[Sequence], drafts: Seq[Draft], logits: FloatArray) -> None:
        """Walk each row's scored block; what is emitted is committed, since the cache follows the tokens."""
        counters = self._counters
        counters.num_steps += 1
        counters.num_rows += len(rows)
        for row, draft, row_logits in zip(rows, drafts, logits, strict=True):
            before = row.num_tokens
            row.num_target_steps += 1
            accepted = row.take_block(row_logits, draft.token_ids, draft.q)
            counters.num_output_tokens += row.num_tokens - before
            if draft.token_ids:
                self._policy.learn(row.acceptance, draft, accepted)
                counters.num_draft_tokens += len(draft.token_ids)
                counters.num_accepted_draft_tokens += accepted

    def _stream(self, sequences: Iterable[Sequence]) -> None:
        """Free the slots of those that ended, then tell everybody's caller the news."""
        with self._timed("stream"):
            for sequence in sequences:
                if sequence.is_ended:
                    self._scheduler.release(sequence)
                    self._counters.num_failed += sequence.error is not None
                self._send(sequence)

    def _send(self, sequence: Sequence) -> None:
        update = sequence.take_update()
        if update is None:
            return
        try:
            sequence.on_update(update)
        except Exception:
            _LOG.exception("request %d: its callback failed; the request is cancelled", sequence.request_id)
            sequence.is_cancelled = True

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        begin = self._clock()
        yield
        self._counters.phase_ms[phase] += (self._clock() - begin) * 1e3

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                if self._scheduler.wait_for_work():
                    self.step()
        except Exception as error:  # whatever it is, nobody may be left waiting
            _LOG.exception("the decode loop failed; the model is not ready any more")
            self._fail_all(error)

    def _fail_all(self, cause: Exception) -> None:
        self._has_failed = True
        refusal = _refusal(f"a step failed: {cause}")
        self._scheduler.refuse(refusal)
        for sequence in self._scheduler.take_all():
            sequence.fail(refusal)
            self._counters.num_failed += 1
            self._send(sequence)


def _refusal(found: str) -> RequestError:
    return RequestError("engine", code=ErrorCode.UNHEALTHY, expected="a running engine", found=found)
