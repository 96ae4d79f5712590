"""The seam to the runtime: opens engines and answers one prompt at a time, with the time and the drafts of every step.

Nothing else here knows ``SamplingParams`` or ``EngineStats``; ``fixed_drafts`` opens what ``load_engine`` does not.
"""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftsmith.model_repo.contract.errors import DraftsmithError, ErrorCode, RequestError
from draftsmith.model_repo.contract.params import GenerationRequest, SamplingParams
from draftsmith.model_repo.runtime.engine import EngineConfig
from draftsmith.model_repo.runtime.loading import load_engine
from draftsmith.model_repo.runtime.request import Update

from .configuration import Configuration
from .conversation import Prompt
from .fixed_drafts import load_fixed_engine
from .machine import count_threads

_WARM_UP_TOKENS = 8


class TooLongError(DraftsmithError):
    """The engine has no room for a prompt and its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the tokens of an answer are drawn; the same for all configurations of a question."""

    max_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one prompt.

    ``seconds``: from the request to the last token; ``decode_seconds``: from the first token on, in which
    ``num_decoded`` tokens came in ``num_steps`` target steps. ``draft_ms``, ``verify_ms`` and ``other_ms``: their parts
    of ``decode_seconds``. ``accepted_counts[a]``: steps that accepted ``a`` drafted tokens.
    """

    token_ids: tuple[int, ...]
    text: str
    num_prompt_tokens: int
    seconds: float
    decode_seconds: float
    num_decoded: int
    num_steps: int
    num_drafted: int
    num_accepted: int
    draft_ms: float
    verify_ms: float
    other_ms: float
    accepted_counts: tuple[int, ...]


class OpenEngine:
    """A loaded and started engine. Answers one request at a time."""

    def __init__(
        self,
        folder: Path,
        *,
        num_threads: int | None,
        num_slots: int,
        num_candidates: int | None = None,
        fixed_nodes: int | None = None,
    ) -> None:
        """``num_candidates``: of the speculative vocabulary, None for the engine's own. ``fixed_nodes``: of every tree,
        None for as many as pay.

        Raises:
            ManifestError, EngineError: the engine cannot be loaded.
        """
        config = _engine_config(num_candidates)
        if fixed_nodes is None:
            self._engine = load_engine(folder, num_threads=num_threads, num_slots=num_slots, config=config)
        else:
            threads = count_threads(num_threads)
            self._engine = load_fixed_engine(
                folder, num_threads=threads, num_slots=num_slots, config=config, num_nodes=fixed_nodes
            )
        self._engine.start()

    def warm_up(self, prompt: Prompt, configuration: Configuration | None) -> None:
        """A short answer that nobody looks at."""
        self.answer(prompt, Sampling(max_tokens=_WARM_UP_TOKENS, temperature=0.0, seed=0), configuration)

    def answer(self, prompt: Prompt, sampling: Sampling, configuration: Configuration | None) -> Answer:
        """A whole answer; ``configuration`` None decodes plainly.

        Raises:
            TooLongError: the engine has no room for it.
            RequestError: the engine refuses it, or failed.
        """
        updates: list[tuple[float, Update]] = []
        done = threading.Event()

        def take(update: Update) -> None:
            updates.append((time.perf_counter(), update))
            if update.is_final:
                done.set()

        request = GenerationRequest(
            text=prompt.text, messages=prompt.messages, sampling=_sampling_params(sampling, configuration)
        )
        before = self._engine.stats().phase_ms
        begin = time.perf_counter()
        try:
            handle = self._engine.submit(request, take)
        except RequestError as error:
            if error.code is not ErrorCode.TOO_LONG:
                raise
            raise TooLongError(error.subject, expected=error.expected, found=error.found) from error
        try:
            done.wait()
        except BaseException:  # Ctrl-C: the engine is free again when it is closed
            handle.cancel()
            raise
        after = self._engine.stats().phase_ms
        phases = {name: after[name] - before.get(name, 0.0) for name in after}
        return join_updates(updates, begin, phases)

    def close(self) -> None:
        """Stop the loop and free the model."""
        self._engine.close()


def join_updates(updates: Sequence[tuple[float, Update]], begin: float, phases: dict[str, float]) -> Answer:
    """An answer of its updates, each with the time it came; ``phases``: milliseconds of the loop by phase.

    Raises:
        RequestError: the request failed.
    """
    first, last = updates[0], updates[-1]
    if last[1].error is not None:
        raise last[1].error
    token_ids = tuple(token for _, update in updates for token in update.token_ids)
    decode_seconds = last[0] - first[0]
    draft_ms, verify_ms = phases.get("draft", 0.0), phases.get("verify", 0.0)
    return Answer(
        token_ids=token_ids,
        text="".join(update.text for _, update in updates),
        num_prompt_tokens=last[1].num_input_tokens,
        seconds=last[0] - begin,
        decode_seconds=decode_seconds,
        num_decoded=len(token_ids) - len(first[1].token_ids),
        num_steps=last[1].num_target_steps,
        num_drafted=last[1].num_draft_tokens,
        num_accepted=last[1].num_accepted_draft_tokens,
        draft_ms=draft_ms,
        verify_ms=verify_ms,
        other_ms=max(0.0, decode_seconds * 1e3 - draft_ms - verify_ms),
        accepted_counts=count_accepted([update for _, update in updates]),
    )


def count_accepted(updates: Sequence[Update]) -> tuple[int, ...]:
    """How many target steps accepted 0, 1, 2, ... drafted tokens: there is an update a step.

    Where several steps share an update, their accepted tokens are taken as evenly spread.
    """
    counts: Counter[int] = Counter()
    steps = accepted = 0
    for update in updates:
        more = update.num_target_steps - steps
        fewer, rest = divmod(update.num_accepted_draft_tokens - accepted, more) if more else (0, 0)
        counts[fewer] += more - rest
        counts[fewer + 1] += rest
        steps, accepted = update.num_target_steps, update.num_accepted_draft_tokens
    most = max((length for length, count in counts.items() if count), default=-1)
    return tuple(counts[length] for length in range(most + 1))


def _sampling_params(sampling: Sampling, configuration: Configuration | None) -> SamplingParams:
    plain = configuration is None or configuration.draft == "off"
    drafting: dict[str, Any] = {}
    if configuration is not None and not plain:
        drafting = {
            "max_draft_tokens": configuration.nodes,
            "draft_depth": configuration.depth,
            "draft_width": configuration.width,
            "draft_method": configuration.draft,
        }
    return SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        seed=sampling.seed,
        speculate=not plain,
        **drafting,
    )


def _engine_config(num_candidates: int | None) -> EngineConfig:
    """The runtime's defaults but for the candidates."""
    return EngineConfig(num_candidates=num_candidates)
