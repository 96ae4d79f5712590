"""What the client returns: plain frozen values without behaviour."""

from dataclasses import dataclass


class EndReason:
    """``finish_reason`` of a result: the server's four, and two that only the client knows.

    ``DEADLINE`` and ``ERROR`` come with an exception; the result so far stays readable on the stream.
    """

    END_ID = "end_id"
    STOP_WORD = "stop_word"
    LENGTH = "length"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of the prompt and of the answer."""

    input: int
    output: int


@dataclass(frozen=True, slots=True)
class DraftStatistics:
    """Tokens drafted and accepted, and target steps after the prefill (all 0 without speculation)."""

    drafted: int
    accepted: int
    target_steps: int

    @property
    def acceptance_rate(self) -> float:
        """accepted / drafted, 0 without drafts."""
        return self.accepted / self.drafted if self.drafted else 0.0


@dataclass(frozen=True, slots=True)
class TokenLogProb:
    """One of the most probable tokens at a position."""

    token_id: int
    log_prob: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One response of a stream: the text and tokens of an accepted block.

    ``finish_reason`` is empty while more follows; the last chunk carries it with ``usage`` and ``draft``.
    ``log_probs`` has one entry a token, ``top_log_probs`` a tuple a token (empty unless asked for). A token whose text
    is not complete yet (part of a character, start of a stop word) gives its text later.
    """

    text: str = ""
    token_ids: tuple[int, ...] = ()
    finish_reason: str = ""
    usage: Usage | None = None
    draft: DraftStatistics | None = None
    log_probs: tuple[float, ...] = ()
    top_log_probs: tuple[tuple[TokenLogProb, ...], ...] = ()

    @property
    def is_final(self) -> bool:
        """True for the last chunk of a stream."""
        return self.finish_reason != ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A whole answer, or what arrived of it before it ended early (``finish_reason`` says which; see ``EndReason``).

    ``usage.input`` is 0 where the end never arrived.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    usage: Usage
    draft: DraftStatistics
    log_probs: tuple[float, ...] = ()
    top_log_probs: tuple[tuple[TokenLogProb, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """A model that the server knows. ``is_draftsmith``: it takes and gives the tensors of our contract."""

    name: str
    version: str
    ready: bool
    reason: str
    is_draftsmith: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDescription:
    """Name, Triton type and dims (-1: any length) of an input or output."""

    name: str
    type: str
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMetadata:
    """What the server says of a model, and of itself."""

    name: str
    versions: tuple[str, ...]
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]
    server_name: str
    server_version: str
