"""Puts together what an engine folder holds besides the engine: tokenizer files and the manifest."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from draftsmith.model_repo.contract.manifest import FORMAT_VERSION, Manifest

from ..checkpoint.source import Checkpoint
from ..engines import BuiltEngine
from ..progress import Progress
from .manifest import describe_files

TOKENIZER_NAME = "tokenizer.json"
TEMPLATE_NAME = "chat_template.jinja"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What the package says of the model beyond its engine: name, limits and how it was built."""

    name: str
    max_batch: int
    max_length: int
    build: Mapping[str, Any]


def write_tokenizer_files(folder: Path, checkpoint: Checkpoint) -> list[str]:
    """Write the tokenizer, and the chat template where there is one; returns the file names."""
    (folder / TOKENIZER_NAME).write_text(checkpoint.tokenizer.tokenizer_json, encoding="utf-8")
    if checkpoint.tokenizer.chat_template is None:
        return [TOKENIZER_NAME]
    # Newlines as they are: a template's are part of the prompt.
    (folder / TEMPLATE_NAME).write_bytes(checkpoint.tokenizer.chat_template.encode())
    return [TOKENIZER_NAME, TEMPLATE_NAME]


def make_manifest(
    folder: Path, facts: ModelFacts, checkpoint: Checkpoint, engine: BuiltEngine, progress: Progress
) -> Manifest:
    """The manifest of an engine folder in which everything stands already; hashes its files."""
    tokenizer = checkpoint.tokenizer
    names = [*engine.files, TOKENIZER_NAME]
    has_template = (folder / TEMPLATE_NAME).is_file()
    end_ids = checkpoint.generation.end_ids or ((tokenizer.eos_id,) if tokenizer.eos_id is not None else ())
    return Manifest(
        format_version=FORMAT_VERSION,
        draftsmith_version=version("draftsmith"),
        model_name=facts.name,
        backend=engine.backend,
        backend_version=engine.backend_version,
        precision=engine.precision,
        spec=checkpoint.spec.to_dict(),
        vocab_size=checkpoint.spec.vocab_size,
        max_batch=facts.max_batch,
        max_length=facts.max_length,
        max_query_len=engine.max_query_len,
        min_query_len=engine.min_query_len,
        feature_layers=list(engine.feature_layers),
        kv_cache=engine.kv_cache,
        draft=getattr(engine, "draft", None),
        bos_id=tokenizer.bos_id,
        end_ids=list(end_ids),
        special_tokens=dict(tokenizer.special_tokens),
        graph_file=engine.graph_file,
        tokenizer_file=TOKENIZER_NAME,
        chat_template_file=TEMPLATE_NAME if has_template else None,
        files=describe_files(folder, [*names, TEMPLATE_NAME] if has_template else names, progress),
        requires=dict(engine.requires),
        build={**facts.build, "engine": dict(engine.build)},
        quality=dict(engine.quality),
    )
