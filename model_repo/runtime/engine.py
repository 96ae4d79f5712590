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

from .adaptive import AdaptiveDraftSize
from .admission import Admission
from .cost_model import CostModel
from .draft_policy import DraftPolicy, StepReport
from .draft_tree import NO_DRAFT, DraftTree
from .drafter import Drafter, DraftQuery, FollowsTarget, NgramDrafter
from .request import OnUpdate, RequestHandle
from .scheduler import PromptChunk, Scheduler
from .sequence import Sequence
from .sessions.base import StepOutputs, TargetSession
from .stats import Counters, EngineStats
from .verifier import Verifier

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What the loop is allowed. ``queue_len``: requests that may wait for a slot. ``prefill_chunk_len``: most prompt
    tokens a turn takes. What a request does not say of its drafts: ``max_draft_len``: nodes a row and step,
    ``draft_depth``: longest branch, ``draft_width``: branches followed a level.
    ``num_candidates``: tokens of a speculative vocabulary that get exact logits, None for the engine's own.
    """

    queue_len: int = 256
    prefill_chunk_len: int = 128
    max_draft_len: int = 15
    draft_depth: int = 15
    draft_width: int = 3
    num_candidates: int | None = None


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
        policy: DraftPolicy | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._session = session
        self._admission = admission
        self._config = config
        self._drafter = drafter or NgramDrafter()
        self._follower = self._drafter if isinstance(self._drafter, FollowsTarget) else None
        self._policy = policy or AdaptiveDraftSize(CostModel())
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
        if self._follower is not None:
            self._follower.close()
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
            if self._follower is not None:
                self._follower.copy_slot(move.source, move.destination)
        if plan.prefill:
            with self._timed("prefill"):
                started = self._take_first_tokens(plan.prefill, self._verifier.prefill(plan.prefill))
            self._stream(started)
        if plan.decode:
            self._decode(plan.decode)
            self._stream(plan.decode)
        return bool(plan.prefill or plan.decode or plan.cancelled)

    def _decode(self, rows: Seq[Sequence]) -> None:
        """One block for every running sequence."""
        before, begin = self._counters.num_output_tokens, self._clock()
        with self._timed("draft"):
            drafts = self._draft(rows)
        drafted = self._clock()
        with self._timed("verify"):
            outputs = self._verifier.score(rows, drafts)
        with self._timed("accept"):
            self._accept(rows, drafts, outputs)
        self._policy.observe_step(
            StepReport(
                num_rows=len(rows),
                num_queries=outputs.logits.shape[1],
                num_tokens=self._counters.num_output_tokens - before,
                draft_ms=(drafted - begin) * 1e3,
                verify_ms=(self._clock() - drafted) * 1e3,
            )
        )

    def _take_first_tokens(self, chunks: Seq[PromptChunk], outputs: StepOutputs) -> list[Sequence]:
        """The first token of each prompt that is complete now; the drafter gets what it needs of the others too."""
        started = []
        for index, (chunk, row) in enumerate(zip(chunks, outputs.logits, strict=True)):
            sequence = chunk.sequence
            self._counters.num_prompt_tokens += chunk.length
            self._follow(sequence, chunk.start, outputs, index, range(chunk.length))
            if sequence.is_prefilled:
                sequence.take_block(row, NO_DRAFT)
                self._counters.num_output_tokens += sequence.num_output_tokens
                started.append(sequence)
        return started

    def _draft(self, rows: Seq[Sequence]) -> list[DraftTree]:
        """What each row's next tokens may be, cut to the size that pays."""
        room = min(self._session.max_query_len, self._session.capacity - max(row.cached_len for row in rows)) - 1
        self._policy.begin_step([row.acceptance for row in rows])
        drafts = self._drafter.propose([self._make_query(row, room) for row in rows])
        return self._policy.prune(drafts)

    def _make_query(self, row: Sequence, room: int) -> DraftQuery:
        """How a row may draft: never longer than could still be emitted besides the bonus token."""
        params, config = row.params, self._config
        nodes = config.max_draft_len if params.max_draft_tokens is None else params.max_draft_tokens
        depth = config.draft_depth if params.draft_depth is None else params.draft_depth
        width = config.draft_width if params.draft_width is None else params.draft_width
        limit = max(0, min(nodes, room)) if params.speculate else 0
        return DraftQuery(
            slot=row.slot,
            tokens=row.tokens,
            limit=limit,
            depth=max(0, min(depth, limit, row.num_tokens_left - 1)),
            width=width if self._session.exact_trees else 1,
            seed=row.seed,
            inverse_temperature=1.0 if row.seed is None else 1.0 / params.temperature,
            method=params.draft_method or "auto",
        )

    def _accept(self, rows: Seq[Sequence], drafts: Seq[DraftTree], outputs: StepOutputs) -> None:
        """Walk each row's scored tree; what is emitted is committed: the cache keeps the path and nothing else."""
        counters = self._counters
        counters.num_steps += 1
        counters.num_rows += len(rows)
        for index, (row, draft, logits) in enumerate(zip(rows, drafts, outputs.logits, strict=True)):
            before, cached = row.num_tokens, row.cached_len
            row.num_target_steps += 1
            path = row.take_block(logits, draft)
            counters.num_output_tokens += row.num_tokens - before
            if draft.token_ids:
                self._policy.learn(row.acceptance, draft, path)
                counters.count_draft(draft, path)
            if not row.is_ended:
                self._keep_path(row, cached, path, outputs, index)

    def _keep_path(self, row: Sequence, cached: int, path: Seq[int], outputs: StepOutputs, index: int) -> None:
        """The last token and the accepted nodes are cached at columns ``cached``, ``cached`` + 1, ... from now on."""
        if list(path) != list(range(len(path))):
            self._session.keep_path(row.slot, cached + 1, [cached + 1 + node for node in path])
        self._follow(row, cached, outputs, index, [0, *(node + 1 for node in path)])

    def _follow(self, row: Sequence, position: int, outputs: StepOutputs, index: int, tokens: Seq[int]) -> None:
        """Tell the drafter which tokens of a step's row are cached, unless the draft model never drafts for it."""
        if self._follower is not None and row.params.speculate and row.params.draft_method != "ngram":
            features = None if outputs.features is None else outputs.features[index, list(tokens)]
            self._follower.observe(row.slot, position, features, len(tokens))

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
