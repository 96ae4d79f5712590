"""Text in lockstep: a batch of conversations with the target, every row one token further at each step.

Each row has a phase (opening, user, assistant). A phase begins with forced tokens (what the chat template puts between
turns) and goes on with sampled ones until the model ends its turn; then the other side speaks. Because all rows stand
at the same position, one CUDA graph a cache span runs everything, sampling and phases included.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from .target_model import TargetModel

OPENING, USER, ASSISTANT = 0, 1, 2
SPAN = 128
"""Columns of the cache by which the part that a step reads grows."""
MOST_WORDS = 32
"""Tokens that may be forced on a user turn's beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What is forced: ``opening`` starts every row; ``before_user`` and ``before_assistant`` follow an ended turn.

    ``end_id`` ends a turn; sampled ``end_ids`` count as it. A model without chat has no turns: ``has_turns`` False lets
    the opening pass into the answer where its length is up, and a row is over with its first end token.
    """

    opening: Sequence[int]
    before_user: Sequence[int]
    before_assistant: Sequence[int]
    end_ids: Sequence[int]
    has_turns: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingPlan:
    """How each row of a batch is written: ``temperatures`` float32 [3, B] and ``limits`` int64 [3, B] (longest turn) by
    phase; ``first_words`` and ``later_words``: tokens that are forced on a row's first and its later user turns."""

    temperatures: torch.Tensor
    limits: torch.Tensor
    first_words: Sequence[Sequence[int]]
    later_words: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """``token_ids`` int32 [B, T]; ``roles`` uint8 [B, T] (the phase that wrote a token; forced ones: OPENING)."""

    token_ids: npt.NDArray[np.int32]
    roles: npt.NDArray[np.uint8]


class TextWriter:
    """Writes batches of one size with one target; its CUDA graphs are captured once."""

    def __init__(self, target: TargetModel, script: Script, *, batch: int, length: int, seed: int) -> None:
        self._target, self._script, self._batch, self._length = target, script, batch, length
        device = target.device
        self._padded = -(-length // SPAN) * SPAN
        self._cache = target.new_cache(batch, -(-(length - 1) // SPAN) * SPAN)  # the last token is never fed
        self._next_phase = torch.tensor([ASSISTANT, ASSISTANT, USER], device=device)
        self._ends = torch.tensor(list(script.end_ids), device=device)

        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
            return torch.zeros(shape, device=device, dtype=dtype)

        self._token, self._phase, self._pointer, self._spoken = (zeros(batch) for _ in range(4))
        self._position = zeros(1)
        self._written, self._roles = zeros(batch, self._padded), zeros(batch, self._padded)
        parts = (script.opening, script.before_user, script.before_assistant)
        self._forced = zeros(3, batch, max(map(len, parts)) + MOST_WORDS + 1)
        self._forced_len = zeros(3, batch)
        self._limits = zeros(3, batch)
        self._temperatures = zeros(3, batch, dtype=torch.float32)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._is_cuda = device.type == "cuda"
        self._pool = torch.cuda.graph_pool_handle() if self._is_cuda else None
        torch.manual_seed(seed)

    def write(self, plan: WritingPlan) -> GeneratedText:
        """One batch."""
        self._temperatures.copy_(plan.temperatures)
        self._limits.copy_(plan.limits)
        self._force(plan)
        self._reset()
        for index in range(self._length - 1):
            self._advance((index // SPAN + 1) * SPAN)
        tokens, roles = self._written[:, : self._length], self._roles[:, : self._length]
        return GeneratedText(tokens.int().cpu().numpy(), roles.byte().cpu().numpy())

    def _force(self, plan: WritingPlan) -> None:
        """Each row's forced tokens by phase: the template's, then its first words."""
        script, nothing = self._script, [()] * self._batch
        forced, lengths = np.zeros(self._forced.shape, np.int64), np.zeros(self._forced_len.shape, np.int64)
        phases = (
            (OPENING, script.opening, plan.first_words),
            (USER, script.before_user, plan.later_words),
            (ASSISTANT, script.before_assistant, nothing),
        )
        for phase, template, words in phases:
            for row in range(self._batch):
                ids = [*template, *words[row][:MOST_WORDS]]
                forced[phase, row, : len(ids)] = ids
                lengths[phase, row] = len(ids)
        self._forced.copy_(torch.from_numpy(forced))
        self._forced_len.copy_(torch.from_numpy(lengths))

    def _reset(self) -> None:
        for tensor in (self._phase, self._spoken, self._position, self._written, self._roles):
            tensor.zero_()
        self._pointer.fill_(1)
        self._token.fill_(int(self._script.opening[0]))
        self._written[:, 0] = self._token

    def _advance(self, span: int) -> None:
        if not self._is_cuda:
            self._step(span)
            return
        if span not in self._graphs:
            self._graphs[span] = self._capture(span)
        self._graphs[span].replay()

    def _capture(self, span: int) -> torch.cuda.CUDAGraph:
        """Warm up on a side stream (state is put back), then record one step."""
        state = (self._token, self._phase, self._pointer, self._spoken, self._position, self._written, self._roles)
        saved = [tensor.clone() for tensor in state]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._step(span)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        for tensor, value in zip(state, saved, strict=True):
            tensor.copy_(value)
        with torch.cuda.graph(graph, pool=self._pool):
            self._step(span)
        return graph

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _step(self, span: int) -> None:
        """Feed each row's token, choose its next, move its phase on."""
        rows = torch.arange(self._batch, device=self._token.device)
        logits = self._target.step(self._token, self._position, self._cache, span)
        noise = torch.empty(logits.shape, device=logits.device, dtype=torch.float32).exponential_().log_()
        sampled = torch.argmax(logits - self._temperatures[self._phase, rows][:, None] * noise, dim=-1)
        is_forced = self._pointer < self._forced_len[self._phase, rows]
        spoken = self._spoken + 1
        is_long = spoken >= self._limits[self._phase, rows]
        is_end = torch.isin(sampled, self._ends)
        if self._script.has_turns:
            sampled = torch.where(is_long | is_end, self._ends[0], sampled)
        switches = ~is_forced & (is_long | is_end)
        forced = self._forced[self._phase, rows, self._pointer.clamp(max=self._forced.shape[2] - 1)]
        chosen = torch.where(is_forced, forced, sampled)
        role = torch.where(is_forced, OPENING, self._phase)
        self._pointer.copy_(torch.where(switches, 0, self._pointer + is_forced.long()))
        self._spoken.copy_(torch.where(switches | is_forced, 0, spoken))
        following = self._next_phase[self._phase] if self._script.has_turns else torch.full_like(self._phase, ASSISTANT)
        self._phase.copy_(torch.where(switches, following, self._phase))
        self._token.copy_(chosen)
        self._position.add_(1)
        self._written.index_copy_(1, self._position, chosen[:, None])
        self._roles.index_copy_(1, self._position, role[:, None])
