"""Tries a finished engine's draft on shipped text: what it gains goes into the manifest, what does not pay is told."""

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftsmith.model_repo.contract.errors import RequestError
from draftsmith.model_repo.contract.params import GenerationRequest, SamplingParams
from draftsmith.model_repo.runtime.engine import DecodeEngine
from draftsmith.model_repo.runtime.loading import load_engine
from draftsmith.model_repo.runtime.request import Update

from ..progress import Progress
from ..quantize.text import read_shipped

_LOG = logging.getLogger(__name__)
_MAX_TOKENS = 48
_PROMPT_CHARS = 300
PAYS = 1.05
"""A draft that gains less than this is reported."""
HARDLY_ACCEPTED = 1.15
"""Tokens a target step below which a draft is not worse than others but read in a wrong way."""


@dataclass(slots=True)
class _Sum:
    """What the answers of one way of decoding took together."""

    tokens: int = 0
    steps: int = 0
    seconds: float = 0.0

    @property
    def speed(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds if self.seconds else 0.0


def try_draft(
    folder: Path, *, is_chat: bool, num_threads: int, progress: Progress, choices: Sequence[str] = ()
) -> dict[str, Any]:
    """Decode a few prompts plainly and with the draft model, in turn; the figures for ``draft.quality``.

    ``is_chat``: the engine has a chat template. ``accepted_length``: tokens a target step, ``speed_up``: over plain
    decoding, on this machine. Nothing where the engine has no room for any of them. ``choices``: what was assumed of
    the draft, for the log where hardly a guess is accepted.
    """
    engine = load_engine(folder, num_threads=num_threads, num_slots=1)
    sums = {"off": _Sum(), "model": _Sum()}
    try:
        prompts = [_make_prompt(document, is_chat=is_chat) for document in read_shipped("held_out")]
        with progress.stage("try draft", total=2 * len(prompts), unit="answers") as stage:
            for prompt in prompts:
                with contextlib.suppress(RequestError):  # an engine for short requests has no room for all
                    for way, total in sums.items():
                        _decode(engine, prompt, way, total)
                stage.advance(2)
    finally:
        engine.close()
    plain, drafted = sums["off"], sums["model"]
    if not drafted.steps:
        return {}
    result = {
        "accepted_length": round(drafted.tokens / max(drafted.steps, 1), 3),
        "speed_up": round(drafted.speed / plain.speed, 3) if plain.speed else 0.0,
        "num_tokens": drafted.tokens,
    }
    if result["speed_up"] < PAYS:
        _LOG.warning(
            "draft: expected a gain over plain decoding, found %.2f x (%.2f tokens a target step on shipped text). "
            "It stays off while it does not pay; build with --draft none, another --draft or another --draft-head",
            result["speed_up"],
            result["accepted_length"],
        )
    if choices and result["accepted_length"] < HARDLY_ACCEPTED:
        _LOG.warning("draft: hardly a guess was accepted. What was assumed of it: %s", " ".join(choices))
    return result


def _make_prompt(document: dict[str, Any], *, is_chat: bool) -> dict[str, Any]:
    """A chat's first turn, or the beginning of a text."""
    if "messages" in document and is_chat:
        return {"messages": tuple(document["messages"][:1])}
    text = document["text"] if "text" in document else "\n".join(turn["content"] for turn in document["messages"])
    return {"text": text[:_PROMPT_CHARS]}


def _decode(engine: DecodeEngine, prompt: dict[str, Any], way: str, total: _Sum) -> None:
    updates: list[Update] = []
    sampling = SamplingParams(
        max_tokens=_MAX_TOKENS, end_ids=(), speculate=way != "off", draft_method=None if way == "off" else way
    )
    engine.submit(GenerationRequest(**prompt, stream=False, sampling=sampling), updates.append)
    engine.step()  # the prompt, where it fits one chunk
    begin = time.perf_counter()
    while not updates:
        engine.step()
    total.seconds += time.perf_counter() - begin
    total.tokens += updates[-1].num_output_tokens - 1
    total.steps += updates[-1].num_target_steps
