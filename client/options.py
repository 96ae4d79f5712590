"""From the caller's keywords to a checked ``GenerationRequest``; nothing is sent before everything is valid."""

import difflib
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from draftsmith.model_repo.contract.errors import RequestError
from draftsmith.model_repo.contract.params import GenerationRequest, SamplingParams

from .errors import InvalidRequest

Message = Mapping[str, str]
OPTION_NAMES = tuple(field.name for field in fields(SamplingParams))


class SamplingOptions(TypedDict, total=False):
    """Keywords of ``generate`` and ``stream``: the fields of ``contract.params.SamplingParams``, with its defaults."""

    max_tokens: int
    min_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    seed: int | None
    stop_words: Sequence[str]
    bad_words: Sequence[str]
    end_ids: Sequence[int] | None
    return_log_probs: bool
    num_top_log_probs: int
    speculate: bool
    max_draft_tokens: int | None
    draft_depth: int | None
    draft_width: int | None
    draft_method: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Exactly one of the three is given."""

    text: str | None = None
    messages: Sequence[Message] | None = None
    input_ids: Iterable[int] | None = None

    @property
    def choices(self) -> dict[str, object]:
        """The three by the caller's names."""
        return {"prompt": self.text, "messages": self.messages, "input_ids": self.input_ids}


def build_request(prompt: Prompt, options: Mapping[str, Any], *, stream: bool) -> GenerationRequest:
    """A valid request.

    Raises ``TypeError`` naming an unknown keyword, ``InvalidRequest`` naming a value that cannot be served.
    """
    refuse_unknown(options)
    given = [name for name, value in prompt.choices.items() if value is not None]
    if len(given) != 1:
        found = ", ".join(given) or "none"
        raise InvalidRequest("prompt", expected="exactly one of prompt, messages, input_ids", found=found)
    try:
        request = GenerationRequest(
            text=prompt.text,
            input_ids=None if prompt.input_ids is None else _whole_numbers("input_ids", prompt.input_ids),
            messages=None if prompt.messages is None else tuple(_turn(message) for message in prompt.messages),
            stream=stream,
            sampling=SamplingParams(**_plain(options)),
        )
        request.validate()
    except RequestError as error:
        raise InvalidRequest.of(error) from error
    return request


def refuse_unknown(options: Mapping[str, Any]) -> None:
    """Raise ``TypeError`` for a keyword that is no sampling option, with the closest known one."""
    for name in options:
        if name not in OPTION_NAMES:
            near = difflib.get_close_matches(name, OPTION_NAMES, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(OPTION_NAMES)}."
            raise TypeError(f"unexpected keyword argument {name!r}. {hint}")


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    plain = dict(options)
    for name in ("stop_words", "bad_words"):
        if name in plain:
            plain[name] = _words(name, plain[name])
    if plain.get("end_ids") is not None:
        plain["end_ids"] = _whole_numbers("end_ids", plain["end_ids"])
    return plain


def _words(name: str, words: object) -> tuple[str, ...]:
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise RequestError(name, expected="a list of strings", found=type(words).__name__)
    listed = tuple(words)
    for word in listed:
        if not isinstance(word, str):
            raise RequestError(name, expected="a list of strings", found=f"one of {type(word).__name__}")
    return listed


def _whole_numbers(name: str, values: object) -> tuple[int, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise RequestError(name, expected="a list of integers", found=type(values).__name__)
    numbers = []
    for value in values:
        if isinstance(value, bool):
            raise RequestError(name, expected="a list of integers", found="one of bool")
        try:
            numbers.append(operator.index(value))  # takes NumPy's integers, refuses 1.0
        except TypeError:
            raise RequestError(name, expected="a list of integers", found=f"one of {type(value).__name__}") from None
    return tuple(numbers)


def _turn(message: object) -> dict[str, str]:
    if not isinstance(message, Mapping):
        raise RequestError("messages", expected="a list of {role, content}", found=f"one of {type(message).__name__}")
    return dict(message)
