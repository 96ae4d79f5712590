"""Times the drafts of a comparison by themselves: one step over a token, and over the nodes of a tree's level.

Inside an answer a draft takes as many steps as pay, so the milliseconds there do not tell a cheap step from a few.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
from draftsmith.model_repo.runtime.draft_tree import chain_mask
from draftsmith.model_repo.runtime.loading import read_manifest
from draftsmith.model_repo.runtime.sessions.base import DraftInputs, DraftSession, FloatArray

from ..progress import Progress
from .fixed_drafts import import_sessions
from .lineup import EngineKey, Entry

LEVEL_WIDTH = 3
"""Nodes of a level: the width that the runtime follows unless a request says otherwise."""
_NUM_CACHED, _PROMPT = 256, 16
_ROUNDS, _REPEATS = 12, 8
_PAUSE_SECONDS = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftStep:
    """Milliseconds of one step of a draft behind 256 cached tokens: over one token, and over ``LEVEL_WIDTH``.

    The fastest of a few steps in a row, which other programs disturb least; the median over rounds of such.
    """

    token_ms: float
    level_ms: float


def measure_draft_steps(
    entries: Iterable[Entry], num_threads: int, progress: Progress, *, clock: Callable[[], float] = time.perf_counter
) -> dict[str, DraftStep]:
    """The step times by name of the entries that draft with a model; drafts take turns, so that drift hits all alike.

    Raises:
        EngineError: a draft cannot be loaded.
    """
    drafting = [entry for entry in entries if entry.uses_model]
    if not drafting:
        return {}
    with ExitStack() as stack, progress.stage("time draft steps", total=_ROUNDS, unit="rounds") as stage:
        steppers: dict[EngineKey, _Stepper] = {}
        for entry in drafting:
            if entry.engine_key not in steppers:
                steppers[entry.engine_key] = _Stepper(_open(entry, num_threads), clock)
                stack.callback(steppers[entry.engine_key].close)
        for turn in range(_ROUNDS):
            order = list(steppers.values())
            for stepper in [*order[turn % len(order) :], *order[: turn % len(order)]]:
                time.sleep(_PAUSE_SECONDS)
                stepper.run()
            stage.advance()
        return {entry.name: steppers[entry.engine_key].result() for entry in drafting}


def _open(entry: Entry, num_threads: int) -> DraftSession:
    folder = entry.facts.folder
    manifest = read_manifest(folder)
    candidates = entry.configuration.num_candidates if entry.configuration else None
    session: DraftSession = import_sessions(manifest).open_draft_session(
        folder, manifest, num_threads=num_threads, num_slots=1, num_candidates=candidates
    )
    return session


@dataclass(slots=True)
class _Stepper:
    """One draft: steps it in blocks and keeps the times."""

    session: DraftSession
    clock: Callable[[], float]
    _times: dict[int, list[float]] = field(default_factory=lambda: {1: [], LEVEL_WIDTH: []})
    _hidden: FloatArray | None = None

    def run(self) -> None:
        """A block of steps of each width; the first of each is not counted, it may allocate."""
        if self.session.feature_size:
            random = np.random.default_rng(0)
            features = random.standard_normal((1, _PROMPT, self.session.feature_size)).astype(np.float32)
            self._step(_PROMPT, features)
        for width, times in self._times.items():
            times.append(min(self._time(width)[1:]))

    def result(self) -> DraftStep:
        """The medians over the blocks."""
        token, level = (statistics.median(self._times[width]) for width in (1, LEVEL_WIDTH))
        return DraftStep(token_ms=token, level_ms=level)

    def close(self) -> None:
        """Free the session."""
        self.session.close()

    def _time(self, width: int) -> Sequence[float]:
        times = []
        for _ in range(_REPEATS + 1):
            begin = self.clock()
            self._step(width, None)
            times.append((self.clock() - begin) * 1e3)
        return times

    def _step(self, width: int, features: FloatArray | None) -> None:
        """``width`` tokens behind the cached ones: a prompt's, with the features, or nodes of a level."""
        is_prompt = features is not None
        past = _NUM_CACHED - _PROMPT if is_prompt else _NUM_CACHED
        num_logits = 1 if is_prompt else width
        hidden = None
        if self._hidden is not None and not is_prompt:
            hidden = np.repeat(self._hidden[:, :1], width, axis=1)
        outputs = self.session.step(
            DraftInputs(
                slots=np.zeros(1, np.int32),
                token_ids=np.arange(10, 10 + width, dtype=np.int32)[None],
                positions=np.full((1, width), past, np.int32) + (np.arange(width, dtype=np.int32) if is_prompt else 0),
                past_lengths=np.full(1, past, np.int32),
                query_lengths=np.full(1, width, np.int32),
                tree_mask=chain_mask(1, width) if is_prompt else np.eye(width, dtype=np.bool_)[None],
                logits_index=np.arange(width - num_logits, width, dtype=np.int32)[None],
                features=features,
                hidden=hidden,
                noise_keys=np.zeros((1, num_logits), np.int64),
                inverse_temperature=np.ones((1, num_logits), np.float32),
            )
        )
        if outputs.hidden is not None:
            self._hidden = np.array(outputs.hidden)
