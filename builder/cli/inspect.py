"""``build-engine inspect``: what a checkpoint is, how large, and what building and serving it takes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..plan import DEFAULT_MAX_BATCH, DEFAULT_MAX_LENGTH, MAX_BATCH_LIMIT, MAX_LENGTH_LIMIT, check_range
from .output import JsonOption, megabytes, print_facts, print_json, print_table
from .paths import to_path


def inspect_checkpoint(
    checkpoint: Annotated[
        Path, typer.Argument(parser=to_path, metavar="CHECKPOINT", help="Hugging Face folder or GGUF file.")
    ],
    max_batch: Annotated[int, typer.Option(help="Cache slots that the serving estimate is for.")] = DEFAULT_MAX_BATCH,
    max_length: Annotated[int, typer.Option(help="Tokens a slot holds, in the estimate.")] = DEFAULT_MAX_LENGTH,
    json: JsonOption = False,
) -> None:
    """Print a checkpoint's architecture, sizes, tokenizer and memory estimates. Reads no weights.

    Example: [cyan]build-engine inspect SmolLM2-135M-Instruct.gguf[/cyan]
    """
    from ..checkpoint.describe import describe_checkpoint
    from ..checkpoint.source import open_checkpoint

    check_range("--max-batch", max_batch, 1, MAX_BATCH_LIMIT)
    check_range("--max-length", max_length, 2, MAX_LENGTH_LIMIT)
    with open_checkpoint(checkpoint) as opened:
        facts = describe_checkpoint(opened, max_batch=max_batch, max_length=max_length)
    if json:
        print_json(facts)
    else:
        _print(facts)


def _print(facts: Mapping[str, Any]) -> None:
    weights, estimates = facts["weights"], facts["estimates"]
    types = ", ".join(f"{name} {megabytes(size)}" for name, size in weights["bytes_by_type"].items())
    print_facts(
        {
            "checkpoint": facts["path"],
            "format": facts["format"],
            "parameters": f"{weights['parameters']:,}",
            "weights": f"{megabytes(weights['bytes'])} in {weights['tensors']} tensors ({types})",
        }
    )
    for title in ("spec", "tokenizer", "generation"):
        print(f"\n{title}")
        print_facts({name: _show(value) for name, value in facts[title].items() if value is not None}, "  ")
    print(f"\nestimates for {estimates['max_batch']} slots of {estimates['max_length']:,} tokens")
    print_table(
        ["  precision", "file", "build memory", "serving memory", "of which cache"],
        [
            [
                f"  {e['precision']}",
                megabytes(e["file_bytes"]),
                megabytes(e["build_peak_bytes"]),
                megabytes(e["serve_bytes"]),
                megabytes(e["cache_bytes_per_slot"] * estimates["max_batch"]),
            ]
            for e in estimates["precisions"]
        ],
    )


def _show(value: object) -> str:
    """Nested values on one line; a long list of repeated words as counts."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items() if inner is not None)
    if isinstance(value, list):
        counts = dict.fromkeys(value, 0)
        for item in value:
            counts[item] += 1
        repeated = any(count > 1 for count in counts.values())
        return ", ".join(f"{count} x {item}" if repeated else str(item) for item, count in counts.items())
    return str(value)
