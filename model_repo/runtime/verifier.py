"""Scores prompts and drafts through the session: rows in, logits and features out. Nothing is chosen here."""

from collections.abc import Sequence as Seq

import numpy as np

from .draft_tree import DraftTree, chain_mask
from .scheduler import PromptChunk
from .sequence import Sequence
from .sessions.base import BoolArray, Int32Array, StepInputs, StepOutputs, TargetSession


class Verifier:
    """Builds step inputs in buffers that live as long as the engine does."""

    def __init__(self, session: TargetSession) -> None:
        self._session = session
        self._ranges: dict[int, Int32Array] = {}

    def prefill(self, chunks: Seq[PromptChunk]) -> StepOutputs:
        """Put chunks into the cache; logits [B, 1, V] of each chunk's last token (valid until the next step)."""
        lengths = np.array([c.length for c in chunks], np.int32)
        token_ids = np.zeros((len(chunks), int(lengths.max())), np.int32)
        for row, chunk in zip(token_ids, chunks, strict=True):
            row[: chunk.length] = chunk.sequence.tokens[chunk.start : chunk.start + chunk.length]
        starts = np.array([c.start for c in chunks], np.int32)
        outputs = self._session.step(
            StepInputs(
                slots=np.array([c.sequence.slot for c in chunks], np.int32),
                token_ids=token_ids,
                positions=starts[:, None] + self._range(token_ids.shape[1]),
                past_lengths=starts,
                query_lengths=lengths,
                tree_mask=chain_mask(*token_ids.shape),
                logits_index=(lengths - 1)[:, None],
            )
        )
        for chunk in chunks:
            chunk.sequence.num_prefilled += chunk.length
        return outputs

    def score(self, rows: Seq[Sequence], drafts: Seq[DraftTree]) -> StepOutputs:
        """Score each row's last token and its draft: logits [B, 1 + largest draft, V], features of the same tokens.

        Valid until the next step.
        """
        num_queries = 1 + max(map(len, drafts))
        token_ids = np.zeros((len(rows), num_queries), np.int32)
        for index, (row, draft) in enumerate(zip(rows, drafts, strict=True)):
            token_ids[index, 0] = row.tokens[-1]
            if draft.token_ids:
                token_ids[index, 1 : 1 + len(draft)] = draft.token_ids
        past = np.array([row.cached_len for row in rows], np.int32)
        lengths = np.array([1 + len(draft) for draft in drafts], np.int32)
        positions, mask = self._place(drafts, past, num_queries)
        return self._session.step(
            StepInputs(
                slots=np.array([row.slot for row in rows], np.int32),
                token_ids=token_ids,
                positions=positions,
                past_lengths=past,
                query_lengths=lengths,
                tree_mask=mask,
                # A shorter row asks for its last token again: an index beyond its queries would name padding.
                logits_index=np.minimum(self._range(num_queries)[None, :], lengths[:, None] - 1),
            )
        )

    def _place(self, drafts: Seq[DraftTree], past: Int32Array, num_queries: int) -> tuple[Int32Array, BoolArray]:
        """Positions [B, T] and who sees whom [B, T, T]."""
        positions = past[:, None] + self._range(num_queries)
        mask = chain_mask(len(drafts), num_queries)
        trees = [index for index, draft in enumerate(drafts) if not draft.is_chain]
        if trees:
            mask = mask.copy()
        for index in trees:
            draft = drafts[index]
            size = 1 + len(draft)
            positions[index, :size] = past[index] + draft.offsets()
            draft.fill_mask(mask[index, :size, :size])
        return positions, mask

    def _range(self, length: int) -> Int32Array:
        if length not in self._ranges:
            self._ranges[length] = np.arange(length, dtype=np.int32)
        return self._ranges[length]
