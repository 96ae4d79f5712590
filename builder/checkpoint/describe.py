"""Facts about an opened checkpoint for ``build-engine inspect``: plain JSON values, nothing is read but the header."""

from collections import Counter
from typing import Any

from draftsmith.builder.spec.draft import DraftSpec
from draftsmith.builder.spec.memory import PRECISIONS, count_parameters, estimate_memory
from draftsmith.builder.spec.target import ModelSpec

from .source import Checkpoint
from .tokenizer import TokenizerFiles


def describe_checkpoint(
    checkpoint: Checkpoint,
    *,
    max_batch: int = 8,
    max_length: int = 2048,
    draft: ModelSpec | DraftSpec | None = None,
) -> dict[str, Any]:
    """Spec, sizes, types, tokenizer, generation defaults and memory estimates (see ``describe_estimates``)."""
    spec, tokenizer, generation = checkpoint.spec, checkpoint.tokenizer, checkpoint.generation
    facts = checkpoint.weights.tensors.values()
    types: Counter[str] = Counter()
    for tensor in facts:
        types[tensor.dtype] += tensor.num_bytes
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
        "estimates": describe_estimates(spec, max_batch=max_batch, max_length=max_length, draft=draft),
    }


def describe_estimates(
    spec: ModelSpec, *, max_batch: int, max_length: int, draft: ModelSpec | DraftSpec | None
) -> dict[str, Any]:
    """What building and serving take, with ``draft`` or without: ``max_batch`` slots of ``max_length`` tokens, at most
    the model's."""
    length = min(max_length, spec.max_positions)
    return {
        "max_batch": max_batch,
        "max_length": length,
        "has_draft": draft is not None,
        "precisions": [
            estimate_memory(spec, precision, max_batch=max_batch, max_length=length, draft=draft).to_dict()
            for precision in PRECISIONS
        ],
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
