"""Facts about an opened checkpoint for ``build-engine inspect``: plain JSON values, nothing is read but the header."""

from collections import Counter
from typing import Any

from draftsmith.builder.spec.memory import PRECISIONS, count_parameters, estimate_memory

from .source import Checkpoint
from .tokenizer import TokenizerFiles


def describe_checkpoint(checkpoint: Checkpoint, *, max_batch: int = 8, max_length: int = 2048) -> dict[str, Any]:
    """Spec, sizes, types, tokenizer, generation defaults and memory estimates.

    ``max_batch`` slots of ``max_length`` tokens (at most the model's) are what the serving estimates are for.
    """
    spec, tokenizer, generation = checkpoint.spec, checkpoint.tokenizer, checkpoint.generation
    facts = checkpoint.weights.tensors.values()
    types: Counter[str] = Counter()
    for tensor in facts:
        types[tensor.dtype] += tensor.num_bytes
    length = min(max_length, spec.max_positions)
    return {
        "path": str(checkpoint.path),
        "format": checkpoint.format,
        "spec": spec.to_dict(),
        "weights": {
            "tensors": len(facts),
            "parameters": count_parameters(spec).total,
            "bytes": sum(types.values()),
            "bytes_by_type": dict(types.most_common()),
        },
        "tokenizer": _tokenizer_facts(tokenizer, spec.vocab_size),
        "generation": {
            "end_ids": list(generation.end_ids),
            "temperature": generation.temperature,
            "top_k": generation.top_k,
            "top_p": generation.top_p,
        },
        "estimates": {
            "max_batch": max_batch,
            "max_length": length,
            "precisions": [
                estimate_memory(spec, precision, max_batch=max_batch, max_length=length).to_dict()
                for precision in PRECISIONS
            ],
        },
    }


def _tokenizer_facts(tokenizer: TokenizerFiles, num_rows: int) -> dict[str, Any]:
    return {
        "vocab_size": tokenizer.vocab_size,
        "padding_rows": num_rows - tokenizer.vocab_size,
        "special_tokens": dict(tokenizer.special_tokens),
        "bos_id": tokenizer.bos_id,
        "eos_id": tokenizer.eos_id,
        "pad_id": tokenizer.pad_id,
        "adds_bos": tokenizer.adds_bos,
        "chat_template": tokenizer.chat_template is not None,
    }
