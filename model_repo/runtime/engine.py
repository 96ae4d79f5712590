"""The decode engine: the order of a decode step, and nothing else. (Interface first; the loop follows.)"""

from dataclasses import dataclass

from draftsmith.model_repo.contract.params import GenerationRequest

from .request import OnUpdate, RequestHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What the loop is allowed. ``queue_len``: requests that may wait for a slot. ``prefill_chunk_len``: most prompt
    tokens a turn takes. ``max_draft_len``: most tokens drafted a step. ``end_ids``: the model's end tokens.
    """

    max_length: int
    end_ids: tuple[int, ...]
    queue_len: int = 256
    prefill_chunk_len: int = 128
    max_draft_len: int = 15


class DecodeEngine:
    """Serves requests over the slots of one session. ``submit``, ``stats`` and ``close`` may come from any thread."""

    @property
    def is_ready(self) -> bool:
        """True between ``start`` and ``close`` while the loop is alive."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the loop's thread."""
        raise NotImplementedError

    def submit(self, request: GenerationRequest, on_update: OnUpdate) -> RequestHandle:
        """Queue a request. Tokenises in the caller's thread and returns at once.

        With ``request.stream`` false there is one update, the final one.

        Raises:
            RequestError: it cannot be served (invalid, too long, queue full, engine not ready); then ``on_update`` is
                never called. After a normal return there is exactly one final update.
        """
        raise NotImplementedError

    def close(self) -> None:
        """End every request (final update, ``cancelled``), stop the loop and close the session."""
        raise NotImplementedError
