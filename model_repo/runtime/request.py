"""What a caller sees of a request: the updates it gets and the handle it holds. The engine's own state is elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass

from draftsmith.model_repo.contract.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprobs:
    """Log-probabilities of an update's tokens: log-softmax of the raw logits (temperature 1, before penalties).

    ``chosen[i]`` is that of ``token_ids[i]``. ``top_ids[i]`` and ``top_logprobs[i]`` hold the most probable tokens at
    that position, most probable first, ties to the lowest id (empty tuples where none were asked for).
    """

    chosen: tuple[float, ...]
    top_ids: tuple[tuple[int, ...], ...]
    top_logprobs: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What a step adds to a request's answer: one update an accepted block, one final update in every ending.

    ``text`` and ``token_ids`` are new since the last update; counts are totals. ``text`` may lag behind ``token_ids``
    (unfinished characters and possible stop words are held back) until the final update. An end token is in none of
    them; a stop word is cut from the text, and the ids go up to the token that completes it. ``finish_reason`` is one
    of ``contract.tensors.FinishReason``, empty where more follows or where ``error`` says why the request failed.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    is_final: bool
    num_input_tokens: int
    num_output_tokens: int
    num_target_steps: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int
    token_logprobs: TokenLogprobs | None = None
    error: RequestError | None = None

    @property
    def acceptance_rate(self) -> float:
        """Accepted / drafted, 0 without drafts."""
        return self.num_accepted_draft_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0


OnUpdate = Callable[[Update], None]
"""Called from the loop's thread, in order; it must not block. After the update with ``is_final`` it is never called."""


class RequestHandle:
    """A submitted request, as its caller holds it. Safe to use from any thread."""

    def __init__(self, request_id: int, cancel: Callable[[], None]) -> None:
        self.request_id = request_id
        self._cancel = cancel

    def cancel(self) -> None:
        """Ask for the end: the slot is free at the next step and the final update says ``cancelled``.

        Does nothing after the final update.
        """
        self._cancel()
