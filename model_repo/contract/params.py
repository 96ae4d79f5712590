"""The parameters of one generation: names, types, defaults, limits, and the one place that checks them."""

import math
from dataclasses import dataclass, field

from .errors import RequestError

MAX_TOP_LOGPROBS = 20
MAX_STOP_WORDS = 64
MAX_BAD_WORDS = 256
MAX_WORD_CHARS = 256
MAX_SEED = 2**64 - 1
MAX_TOKENS_LIMIT = 2**31 - 1
DRAFT_METHODS = ("auto", "model", "ngram")
"""Who drafts: the draft model, look-up in the text so far, or both, whichever pays (``auto``; the default)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are chosen and when to stop. Every field has the neutral or usual default.

    ``temperature`` 0 (or under 1e-4) or ``top_k`` 1 is greedy. ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 are off.
    ``repetition_penalty`` counts prompt and output (as transformers does), ``presence_penalty`` and
    ``frequency_penalty`` count the output alone (as OpenAI's API does). ``seed`` None draws one. ``end_ids`` None means
    the model's own end tokens; an empty tuple means none. ``max_draft_tokens`` are the nodes of a draft's tree,
    ``draft_depth`` the tokens of its longest branch, ``draft_width`` the nodes of a level that are followed (1 makes
    chains); ``draft_method`` is one of ``DRAFT_METHODS``. None takes the engine's.
    """

    max_tokens: int = 128
    min_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop_words: tuple[str, ...] = ()
    bad_words: tuple[str, ...] = ()
    end_ids: tuple[int, ...] | None = None
    return_log_probs: bool = False
    num_top_log_probs: int = 0
    speculate: bool = True
    max_draft_tokens: int | None = None
    draft_depth: int | None = None
    draft_width: int | None = None
    draft_method: str | None = None

    @property
    def is_greedy(self) -> bool:
        """True where the most probable token is always taken."""
        return self.temperature < 1e-4 or self.top_k == 1

    def validate(self) -> None:
        """Raise ``RequestError`` naming the first field that is out of range; NaN and infinity never pass."""
        for name, least, most in _INT_RANGES:
            value = getattr(self, name)
            if value is not None:
                _check_int(name, value, least, most)
        for name in ("return_log_probs", "speculate"):
            _check_bool(name, getattr(self, name))
        for name, low, high, open_low in _FLOAT_RANGES:
            _check_float(name, getattr(self, name), low, high, open_low=open_low)
        if self.draft_method is not None and self.draft_method not in DRAFT_METHODS:
            raise RequestError("draft_method", expected=" or ".join(DRAFT_METHODS), found=_show(self.draft_method))
        if self.min_tokens > self.max_tokens:
            raise RequestError(
                "min_tokens", expected=f"at most max_tokens = {self.max_tokens}", found=str(self.min_tokens)
            )
        _check_words("stop_words", self.stop_words, MAX_STOP_WORDS)
        _check_words("bad_words", self.bad_words, MAX_BAD_WORDS)
        for token in self.end_ids or ():
            _check_int("end_ids", token, 0, MAX_TOKENS_LIMIT)


_INT_RANGES: tuple[tuple[str, int, int], ...] = (
    ("max_tokens", 1, MAX_TOKENS_LIMIT),
    ("min_tokens", 0, MAX_TOKENS_LIMIT),
    ("top_k", 0, MAX_TOKENS_LIMIT),
    ("seed", 0, MAX_SEED),
    ("num_top_log_probs", 0, MAX_TOP_LOGPROBS),
    ("max_draft_tokens", 0, 64),
    ("draft_depth", 0, 64),
    ("draft_width", 1, 16),
)

_FLOAT_RANGES: tuple[tuple[str, float, float, bool], ...] = (
    ("temperature", 0.0, 100.0, False),
    ("top_p", 0.0, 1.0, True),
    ("min_p", 0.0, 1.0, False),
    ("repetition_penalty", 0.0, 100.0, True),
    ("presence_penalty", -100.0, 100.0, False),
    ("frequency_penalty", -100.0, 100.0, False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One request: exactly one of ``text``, ``input_ids`` and ``messages``, and how to sample.

    ``messages`` are chat turns, each with ``role`` and ``content``; the server renders them with the model's template.
    """

    text: str | None = None
    input_ids: tuple[int, ...] | None = None
    messages: tuple[dict[str, str], ...] | None = None
    stream: bool = True
    sampling: SamplingParams = field(default_factory=SamplingParams)

    def validate(self) -> None:
        """Raise ``RequestError`` where the request cannot be served whatever the model is."""
        given = [name for name in ("text", "input_ids", "messages") if getattr(self, name) is not None]
        if len(given) != 1:
            raise RequestError(
                "prompt", expected="exactly one of text_input, input_ids, messages", found=", ".join(given) or "none"
            )
        if not getattr(self, given[0]):
            raise RequestError(given[0], expected="a prompt of at least one token", found="an empty one")
        if self.text is not None and not isinstance(self.text, str):
            raise RequestError("text", expected="a string", found=type(self.text).__name__)
        for token in self.input_ids or ():
            _check_int("input_ids", token, 0, MAX_TOKENS_LIMIT)
        for turn in self.messages or ():
            _check_turn(turn)
        _check_bool("stream", self.stream)
        self.sampling.validate()


def _check_turn(turn: object) -> None:
    """A chat turn has ``role`` and ``content``; it may have more for the template, all strings."""
    if not isinstance(turn, dict):
        raise RequestError("messages", expected="a list of {role, content}", found=f"one of {type(turn).__name__}")
    for name in ("role", "content"):
        if name not in turn:
            raise RequestError("messages", expected=f"{name} in every turn", found="none")
    for name, value in turn.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise RequestError("messages", expected=f"a string as {name}", found=type(value).__name__)


def _check_int(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RequestError(name, expected=f"an integer from {low} to {high}", found=_show(value))


def _check_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):  # "no" is true in Python
        raise RequestError(name, expected="True or False", found=_show(value))


def _check_float(name: str, value: object, low: float, high: float, *, open_low: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise RequestError(name, expected="a finite number", found=_show(value))
    if value > high or value < low or (open_low and value == low):
        bound = "above" if open_low else "from"
        raise RequestError(name, expected=f"a number {bound} {low:g} to {high:g}", found=_show(value))


def _check_words(name: str, words: tuple[str, ...], most: int) -> None:
    if len(words) > most:
        raise RequestError(name, expected=f"at most {most} words", found=str(len(words)))
    for word in words:
        if not word or len(word) > MAX_WORD_CHARS:
            raise RequestError(name, expected=f"words of 1 to {MAX_WORD_CHARS} characters", found=f"one of {len(word)}")


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
