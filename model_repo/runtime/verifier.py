"""Scores prompts and drafts through the session: rows in, logits out. Nothing is chosen here."""

from collections.abc import Sequence as Seq

import numpy as np

from .drafter import Draft
from .scheduler import PromptChunk
from .sequence import Sequence
from .sessions.base import BoolArray, FloatArray, Int32Array, StepInputs, TargetSession


class Verifier:
    """Builds step inputs in buffers that live as long as the engine does."""

    def __init__(self, session: TargetSession) -> None:
        self._session = session
        self._chain_masks: dict[tuple[int, int], BoolArray] = {}
        self._ranges: dict[int, Int32Array] = {}

    def prefill(self, chunks: Seq[PromptChunk]) -> FloatArray:
        """Put chunks into the cache; logits [B, V] of each chunk's last token (valid until the next step)."""
        lengths = np.array([c.length for c in chunks], np.int32)
        token_ids = np.zeros((len(chunks), int(lengths.max())), np.int32)
        for row, chunk in zip(token_ids, chunks, strict=True):
            row[: chunk.length] = chunk.sequence.tokens[chunk.start : chunk.start + chunk.length]
        slots = np.array([c.sequence.slot for c in chunks], np.int32)
        starts = np.array([c.start for c in chunks], np.int32)
        logits = self._step(slots, token_ids, starts, lengths, (lengths - 1)[:, None])
        for chunk in chunks:
            chunk.sequence.num_prefilled += chunk.length
        return logits[:, 0]  # [B, V]

    def score(self, rows: Seq[Sequence], drafts: Seq[Draft]) -> FloatArray:
        """Score each row's last token and its draft; logits [B, 1 + longest draft, V] (valid until the next step)."""
        num_queries = 1 + max(len(d.token_ids) for d in drafts)
        token_ids = np.zeros((len(rows), num_queries), np.int32)
        for index, (row, draft) in enumerate(zip(rows, drafts, strict=True)):
            token_ids[index, 0] = row.tokens[-1]
            if draft.token_ids:
                token_ids[index, 1 : 1 + len(draft.token_ids)] = draft.token_ids
        slots = np.array([row.slot for row in rows], np.int32)
        past = np.array([row.cached_len for row in rows], np.int32)
        lengths = np.array([1 + len(d.token_ids) for d in drafts], np.int32)
        # A shorter row asks for its last token again: an index beyond its queries would name padding.
        logits_index = np.minimum(self._range(num_queries)[None, :], lengths[:, None] - 1)
        return self._step(slots, token_ids, past, lengths, logits_index)

    def _step(
        self, slots: Int32Array, token_ids: Int32Array, past: Int32Array, lengths: Int32Array, index: Int32Array
    ) -> FloatArray:
        num_rows, num_queries = token_ids.shape
        inputs = StepInputs(
            slots=slots,
            token_ids=token_ids,
            positions=past[:, None] + self._range(num_queries),
            past_lengths=past,
            query_lengths=lengths,
            tree_mask=self._chain_mask(num_rows, num_queries),
            logits_index=index,
        )
        return self._session.step(inputs).logits

    def _range(self, length: int) -> Int32Array:
        if length not in self._ranges:
            self._ranges[length] = np.arange(length, dtype=np.int32)
        return self._ranges[length]

    def _chain_mask(self, num_rows: int, num_queries: int) -> BoolArray:
        """Every token sees those before it and itself: bool [B, T, T]."""
        mask = self._chain_masks.get((num_rows, num_queries))
        if mask is None:
            triangle = np.tril(np.ones((num_queries, num_queries), np.bool_))
            mask = np.ascontiguousarray(np.broadcast_to(triangle, (num_rows, num_queries, num_queries)))
            if num_queries <= 64:  # few shapes, every step; long prompts' masks are made anew
                self._chain_masks[num_rows, num_queries] = mask
        return mask
