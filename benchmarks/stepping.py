"""Times single steps of a target session: B rows of T tokens behind S cached ones, logits for every token."""

import statistics
import time
from pathlib import Path

import numpy as np
from draftsmith.model_repo.runtime.loading import read_manifest
from draftsmith.model_repo.runtime.sessions.base import StepInputs
from draftsmith.model_repo.runtime.sessions.onnxruntime import open_session


class Stepper:
    """A session whose slots all hold the same random tokens."""

    def __init__(self, folder: Path, num_threads: int, num_slots: int, num_cached: int) -> None:
        manifest = read_manifest(folder)
        self._session = open_session(folder, manifest, num_threads=num_threads, num_slots=num_slots)
        self._random = np.random.default_rng(0)
        for slot in range(num_slots):
            for start in range(0, num_cached, manifest.max_query_len):
                length = min(manifest.max_query_len, num_cached - start)
                self._session.step(self._inputs(1, length, start, num_logits=1, first_slot=slot))

    def median_ms(self, num_rows: int, num_tokens: int, num_cached: int, repeats: int) -> float:
        """Median milliseconds of ``repeats`` equal steps after one that is not counted."""
        inputs = self._inputs(num_rows, num_tokens, num_cached, num_logits=num_tokens)
        self._session.step(inputs)
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            self._session.step(inputs)
            times.append((time.perf_counter() - start) * 1e3)
        return statistics.median(times)

    def close(self) -> None:
        """Free the session."""
        self._session.close()

    def _inputs(self, rows: int, tokens: int, cached: int, *, num_logits: int, first_slot: int = 0) -> StepInputs:
        full = np.full(rows, tokens, np.int32)
        return StepInputs(
            slots=np.arange(first_slot, first_slot + rows, dtype=np.int32),
            token_ids=self._random.integers(3, self._session.vocab_size, (rows, tokens), dtype=np.int32),
            positions=np.tile(np.arange(cached, cached + tokens, dtype=np.int32), (rows, 1)),
            past_lengths=np.full(rows, cached, np.int32),
            query_lengths=full,
            tree_mask=np.tile(np.tril(np.ones((tokens, tokens), np.bool_)), (rows, 1, 1)),
            logits_index=np.tile(np.arange(tokens - num_logits, tokens, dtype=np.int32), (rows, 1)),
        )
