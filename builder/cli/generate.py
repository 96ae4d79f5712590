"""``build-engine generate``: one prompt, one answer, streamed."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from .output import JsonOption, QuietOption, print_json, say
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
    from draftsmith.client import Stream


def generate_text(
    url: Annotated[str, typer.Argument(help="gRPC endpoint, host:port (grpcs://host:port for TLS).")],
    prompt: Annotated[str, typer.Argument(help="Prompt text; - reads standard input.")],
    model: ModelOption = None,
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt into the model's chat template.")] = False,
    max_tokens: MaxTokens = 128,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    seed: Seed = None,
    stop: Annotated[list[str] | None, typer.Option(help="Text that ends the answer (repeatable).")] = None,
    speculate: Speculate = True,
    timeout: Timeout = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Send one prompt to a served model and print the answer as it arrives.

    Example: [cyan]build-engine generate localhost:8001 "Once upon a time" -m smollm2_int8[/cyan]
    """
    from draftsmith.client import Client

    text = _read_prompt(prompt)
    with Client(url, model=model, timeout=timeout) as client:
        start = time.monotonic()
        with client.stream(
            None if chat else text,
            messages=[{"role": "user", "content": text}] if chat else None,
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            stop_words=stop or (),
            speculate=speculate,
        ) as stream:
            _show(stream, silent=json)
        facts = answer_facts(model, stream.result, time.monotonic() - start)
    if json:
        print_json(facts)
    else:
        say(describe_answer(facts), quiet=quiet)


def _show(stream: "Stream", *, silent: bool) -> None:
    """Print the answer as it comes, and end its line: whatever comes next, an error too, starts its own."""
    begun = False
    try:
        for chunk in stream:
            if not silent:
                print(chunk.text, end="", flush=True)
                begun = True
    except BaseException:
        if begun:
            print(flush=True)
        raise
    if not silent:
        print(flush=True)


def _read_prompt(prompt: str) -> str:
    if prompt != "-":
        return prompt
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("standard input", expected="UTF-8 text", found=f"byte {error.start} is not") from error
