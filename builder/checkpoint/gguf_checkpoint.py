"""Opening a GGUF file: header, config, weights, tokenizer, in that order."""

from pathlib import Path

from draftsmith.builder.errors import CheckpointError
from draftsmith.builder.model import read_model_spec

from .gguf_config import hf_config
from .gguf_header import GgufHeader, read_header
from .gguf_names import ROPE_FACTORS
from .gguf_rope import llama3_scaling
from .gguf_tokenizer import read_generation, read_tokenizer
from .gguf_weights import GgufWeights, block_sizes, load_ggml, read_values
from .mapped_file import MappedFile
from .source import Checkpoint
from .strict import check_tensors


def open_gguf(path: Path) -> Checkpoint:
    """Open and check a file; see ``source.open_checkpoint``."""
    file = MappedFile(path)
    try:
        header = read_header(file, block_sizes())
        _refuse_parts(header, str(path))
        config = hf_config(header, str(path))
        spec = read_model_spec(config, str(path))
        if ROPE_FACTORS in header.tensors:
            factors = read_values(file, header.tensors[ROPE_FACTORS], load_ggml())
            scaling = llama3_scaling(factors.reshape(-1), spec.rope, spec.head_dim, str(path))
            spec = read_model_spec({**config, "rope_scaling": scaling}, str(path)) if scaling else spec
        weights = GgufWeights(file, header, spec, frozenset({ROPE_FACTORS}))
        check_tensors(spec, weights.tensors, str(path))
        tokenizer = read_tokenizer(header.metadata, spec.vocab_size, str(path))
        generation = read_generation(header.metadata, str(path))
    except BaseException:
        file.close()
        raise
    return Checkpoint(
        path=path,
        format=weights.format,
        spec=spec,
        weights=weights,
        tokenizer=tokenizer,
        generation=generation,
    )


def _refuse_parts(header: GgufHeader, where: str) -> None:
    """One part of a split model, or something that is no model, is refused by what it is."""
    parts, kind = header.metadata.get("split.count", 1), header.metadata.get("general.type", "model")
    if parts not in (0, 1):
        raise CheckpointError(
            "GGUF file",
            expected="the whole model",
            found=f"one of {parts!r:.20} parts",
            where=where,
            action="Join them with llama.cpp's `llama-gguf-split --merge`.",
        )
    if kind != "model":
        raise CheckpointError("general.type", expected="model", found=f"{kind!r:.40}", where=where)
