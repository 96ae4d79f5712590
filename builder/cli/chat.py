"""``build-engine chat``: a conversation with a served model in the terminal. The loop is the client's."""

import sys
from typing import Annotated

import typer

from .output import QuietOption
from .sampling import MaxTokens, ModelOption, Seed, Speculate, Temperature, Timeout, TopK, TopP


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
    from draftsmith.client.chat import Chat, read_lines
    from draftsmith.client.options import SamplingOptions

    options: SamplingOptions = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "speculate": speculate,
    }
    with Client(url, model=model, timeout=timeout) as client:
        Chat(client, options, system=system, notes=None if quiet else sys.stderr).run(read_lines())
