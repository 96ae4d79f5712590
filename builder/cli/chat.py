"""``build-engine chat``: a conversation with a served model in the terminal."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from .output import QuietOption, say
from .sampling import (
    MaxTokens,
    ModelOption,
    Seed,
    Speculate,
    Temperature,
    Timeout,
    TopK,
    TopP,
    answer_facts,
    describe_answer,
)

if TYPE_CHECKING:
    from draftsmith.client import Client
    from draftsmith.client.options import SamplingOptions

_HELP = "/new starts over, /quit (or Ctrl-D) ends, Ctrl-C stops an answer"


def chat_with_model(
    url: Annotated[str, typer.Argument(help="gRPC endpoint, host:port (grpcs://host:port for TLS).")],
    model: ModelOption = None,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    max_tokens: MaxTokens = 512,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    seed: Seed = None,
    speculate: Speculate = True,
    timeout: Timeout = None,
    quiet: QuietOption = False,
) -> None:
    """Chat with a served model, with its own chat template.

    Example: [cyan]build-engine chat localhost:8001 -m smollm2_int8[/cyan]
    """
    from draftsmith.client import Client

    options: SamplingOptions = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "speculate": speculate,
    }
    with Client(url, model=model, timeout=timeout) as client:
        say(_HELP, quiet=quiet)
        _Conversation(client, system, options, quiet=quiet).run()


class _Conversation:
    """The turns so far, and the loop that adds to them."""

    def __init__(self, client: "Client", system: str | None, options: "SamplingOptions", *, quiet: bool) -> None:
        self._client = client
        self._first = [{"role": "system", "content": system}] if system else []
        self._turns = list(self._first)
        self._options = options
        self._quiet = quiet

    def run(self) -> None:
        """Until the user ends it."""
        while (line := self._read_line()) is not None:
            command = line.strip()
            if command == "/quit":
                return
            if command == "/new":
                self._turns = list(self._first)
            elif command:
                self._answer(line)

    def _read_line(self) -> str | None:
        try:
            return input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return None

    def _answer(self, line: str) -> None:
        """Stream one answer; Ctrl-C keeps what arrived."""
        messages = [*self._turns, {"role": "user", "content": line}]
        start = time.monotonic()
        with self._client.stream(messages=messages, **self._options) as stream:
            try:
                for chunk in stream:
                    print(chunk.text, end="", flush=True)
            except KeyboardInterrupt:
                stream.close()
        print()
        result = stream.result
        say(describe_answer(answer_facts(None, result, time.monotonic() - start)), quiet=self._quiet)
        self._turns = [*messages, {"role": "assistant", "content": result.text}]
