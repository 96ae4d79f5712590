"""What a request's answer gathers between two updates: text, ids and log-probabilities."""

from .detokenizer import Detokenizer
from .logprobs import LogprobEntry, join_logprobs
from .request import TokenLogprobs
from .stop_words import StopScanner


class AnswerStream:
    """Tokens in, text out; holds what the next update will carry."""

    def __init__(self, detokenizer: Detokenizer, scanner: StopScanner) -> None:
        self._detokenizer = detokenizer
        self._scanner = scanner
        self._text: list[str] = []
        self._token_ids: list[int] = []
        self._logprobs: list[LogprobEntry] = []

    def push(self, token: int, logprobs: LogprobEntry | None, *, is_counted: bool) -> bool:
        """Add an emitted token; True where it completes a stop word (and ``is_counted``, see ``StopScanner.push``)."""
        self._token_ids.append(token)
        if logprobs is not None:
            self._logprobs.append(logprobs)
        text, is_stopped = self._scanner.push(self._detokenizer.push(token), is_counted=is_counted)
        if text:
            self._text.append(text)
        return is_stopped

    def flush(self) -> None:
        """The answer ends here and no stop word cut it: release what is held back."""
        text, _ = self._scanner.push(self._detokenizer.flush(), is_counted=False)
        self._text += [text, self._scanner.flush()]

    @property
    def has_news(self) -> bool:
        """True where an update would carry a token."""
        return bool(self._token_ids)

    def take(self) -> tuple[str, tuple[int, ...], TokenLogprobs | None]:
        """What was gathered since the last call."""
        news = "".join(self._text), tuple(self._token_ids), join_logprobs(self._logprobs) if self._logprobs else None
        self._text, self._token_ids, self._logprobs = [], [], []
        return news
