"""Sampling options shared by ``generate`` and ``chat``, and how they reach the client."""

from typing import Annotated, Any

import typer

_PANEL = "Sampling"

ModelOption = Annotated[str | None, typer.Option("--model", "-m", help="Model name; needed where several are served.")]
MaxTokens = Annotated[int, typer.Option(help="Most tokens to generate.", rich_help_panel=_PANEL)]
Temperature = Annotated[float, typer.Option(help="0: always the most probable token.", rich_help_panel=_PANEL)]
TopK = Annotated[int, typer.Option(help="Sample from the k most probable tokens; 0: off.", rich_help_panel=_PANEL)]
TopP = Annotated[float, typer.Option(help="Sample from this probability mass; 1: off.", rich_help_panel=_PANEL)]
Seed = Annotated[int | None, typer.Option(help="Same seed, same text.", rich_help_panel=_PANEL)]
Speculate = Annotated[
    bool, typer.Option("--speculate/--plain", help="Speculative or plain decoding.", rich_help_panel=_PANEL)
]
Timeout = Annotated[float | None, typer.Option(help="Seconds an answer may take.")]


def answer_facts(model: str | None, result: Any, seconds: float) -> dict[str, Any]:
    """The figures of a finished answer (a ``client.Result``), ready for JSON."""
    return {
        "model": model,
        "text": result.text,
        "token_ids": list(result.token_ids),
        "finish_reason": result.finish_reason,
        "num_input_tokens": result.usage.input,
        "num_output_tokens": result.usage.output,
        "seconds": round(seconds, 3),
        "tokens_per_second": round(result.usage.output / seconds, 1) if seconds > 0 else None,
        "drafted": result.draft.drafted,
        "accepted": result.draft.accepted,
    }


def describe_answer(facts: dict[str, Any]) -> str:
    """``42 tokens in 0.61 s, 68.9 tokens/s, 12 of 20 drafted tokens accepted, ended by length``."""
    drafts = f", {facts['accepted']} of {facts['drafted']} drafted tokens accepted" if facts["drafted"] else ""
    return (
        f"{facts['num_output_tokens']} tokens in {facts['seconds']:.2f} s, {facts['tokens_per_second']} tokens/s"
        f"{drafts}, ended by {facts['finish_reason']}"
    )
