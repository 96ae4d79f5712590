"""A small chat over lines: turns from an input stream, streamed answers and their speed to an output stream."""

import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from .client import Client
from .options import Message, SamplingOptions
from .types import EndReason, Result

_HELP = "/new starts over, /quit or Ctrl-D leaves, Ctrl-C stops an answer"


class Chat:
    """A conversation of several turns with one model.

    Answers go to ``out``; what is said about them (help, speed, acceptance) goes to ``notes``, None for nothing.
    ``system`` is the system message. A cancelled answer stays in the conversation as far as it came.
    """

    def __init__(
        self,
        client: Client,
        options: SamplingOptions,
        *,
        system: str | None = None,
        out: TextIO | None = None,
        notes: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._options = options
        self._first: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        self._out = sys.stdout if out is None else out
        self._notes = notes
        self._clock = clock
        self.messages = list(self._first)

    def run(self, lines: Iterator[str]) -> None:
        """Answer each line until ``/quit`` or the end of the lines; errors of the client pass through."""
        self._say(_HELP)
        for line in lines:
            command = line.strip()
            if command == "/quit":
                return
            if command == "/new":
                self.messages = list(self._first)
            elif command:
                self.answer(line.rstrip("\n"))

    def answer(self, text: str) -> Result:
        """Send one turn and print its answer as it comes; Ctrl-C keeps what arrived."""
        messages = [*self.messages, {"role": "user", "content": text}]
        start = self._clock()
        with self._client.stream(messages=messages, **self._options) as stream:
            try:
                for chunk in stream:
                    self._out.write(chunk.text)
                    self._out.flush()
            except KeyboardInterrupt:
                stream.close()
        self._out.write("\n")
        self._out.flush()
        result = stream.result
        self._say(describe(result, self._clock() - start))
        self.messages = [*messages, {"role": "assistant", "content": result.text}]
        return result

    def _say(self, text: str) -> None:
        if self._notes is not None:
            print(text, file=self._notes, flush=True)


def describe(result: Result, seconds: float) -> str:
    """One line on an answer: tokens, tokens/s, and what drafting gave."""
    tokens = result.usage.output
    parts = [f"{tokens} tokens"]
    if seconds > 0:
        parts.append(f"{tokens / seconds:.1f} tokens/s")
    if result.draft.drafted:
        parts.append(f"{result.draft.accepted} of {result.draft.drafted} drafted tokens accepted")
        parts.append(f"{100 * result.draft.acceptance_rate:.0f} %")
    if result.finish_reason == EndReason.CANCELLED:
        parts.append("cancelled")
    return ", ".join(parts)


def read_lines(source: TextIO | None = None) -> Iterator[str]:
    """Lines to answer: with a prompt and line editing on a terminal, plain lines otherwise.

    Ctrl-C at the prompt drops the line that was being typed.
    """
    if source is not None or not sys.stdin.isatty():
        yield from sys.stdin if source is None else source
        return
    while True:
        try:
            yield input("> ")
        except KeyboardInterrupt:
            print()
        except EOFError:
            print()
            return
