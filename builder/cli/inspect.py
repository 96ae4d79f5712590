"""``build-engine inspect``: what a checkpoint is, how large, and what building and serving it takes."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .output import JsonOption, megabytes, print_facts, print_json


def inspect_checkpoint(
    checkpoint: Annotated[Path, typer.Argument(help="Hugging Face folder or GGUF file.")],
    json: JsonOption = False,
) -> None:
    """Print a checkpoint's architecture, sizes, tokenizer and memory estimates. Reads no weights.

    Example: [cyan]build-engine inspect SmolLM2-135M-Instruct.gguf[/cyan]
    """
    from ..checkpoint.source import open_checkpoint

    with open_checkpoint(checkpoint) as opened:
        tokenizer = opened.tokenizer
        tensors = opened.weights.tensors.values()
        values: dict[str, Any] = {
            "path": str(checkpoint),
            "format": opened.format,
            "spec": opened.spec.to_dict(),
            "tensors": len(tensors),
            "weight_bytes": sum(t.num_bytes for t in tensors),
            "dtypes": sorted({t.dtype for t in tensors}),
            "tokenizer": {
                "vocab_size": tokenizer.vocab_size,
                "bos_id": tokenizer.bos_id,
                "end_ids": list(opened.generation.end_ids),
                "adds_bos": tokenizer.adds_bos,
                "chat_template": tokenizer.chat_template is not None,
            },
        }
    if json:
        print_json(values)
        return
    spec = values.pop("spec")
    tokens = values.pop("tokenizer")
    values["weight_bytes"] = megabytes(values["weight_bytes"])
    values["dtypes"] = ", ".join(values["dtypes"])
    print_facts(values)
    print_facts({k: v for k, v in spec.items() if v is not None}, "  ")
    print_facts(tokens, "  ")
