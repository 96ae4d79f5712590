"""Opens a draft of any kind: an EAGLE-3 folder of one of the formats, or a small language model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoint.hf_folder import open_weights
from ..checkpoint.json_file import read_json_object
from ..checkpoint.source import Checkpoint, open_checkpoint
from ..errors import BuilderError, CheckpointError
from ..model.config import Config
from ..spec.draft import DraftSpec
from ..spec.target import ModelSpec
from .checkpoint import DraftCheckpoint
from .config_keys import flatten_config
from .formats import FORMATS, detect_format, has_draft_tensors, is_draft_config
from .ranking_tensors import read_ranking
from .read_spec import read_draft_spec
from .strict import check_draft_tensors
from .tensor_names import DIRECT_IDS, MASK, OFFSETS
from .tensors import DraftTensors
from .vocab_map import StoredMaps, resolve_target_ids


def is_eagle_draft(path: Path) -> bool:
    """Whether a path is a folder with an EAGLE draft rather than a language model.

    A config that says nothing of it (the original EAGLE-3 without ``draft_vocab_size``, EAGLE-2) leaves it to the
    tensors' names; no weights are read.
    """
    path = Path(path)
    config = path / "config.json"
    return config.is_file() and (is_draft_config(read_json_object(config)) or _looks_like_draft(path))


def _looks_like_draft(folder: Path) -> bool:
    try:
        weights = open_weights(folder)
    except BuilderError:
        return False  # opening it as a language model says what is wrong
    try:
        return has_draft_tensors(weights.tensors)
    finally:
        weights.close()


def open_draft(path: Path, target: ModelSpec | None = None) -> DraftCheckpoint | Checkpoint:
    """Open and check a draft whole; weights are read when they are asked for (a ranking at once).

    ``target``: needed where the file leaves its feature layers or sizes to the target; without it ``feature_layers`` is
    () in that case and the draft can be described, not built. Whether it fits that target is ``check_match``'s matter.
    Raises ``CheckpointError`` naming the key or tensor that is wrong, missing, surplus or not supported.
    """
    path = Path(path)
    if not is_eagle_draft(path):
        return open_checkpoint(path)
    tensors = DraftTensors(path)
    try:
        return _open_eagle(path, read_json_object(path / "config.json"), tensors, target)
    except BaseException:
        tensors.close()
        raise


def _open_eagle(path: Path, values: dict[str, Any], tensors: DraftTensors, target: ModelSpec | None) -> DraftCheckpoint:
    where = str(path / "config.json")
    name = detect_format(values, tensors.layer_prefix, tensors.shapes.keys())
    config = flatten_config(values, name, where)
    choices: list[str] = []
    spec = read_draft_spec(config, FORMATS[name], tensors, target, choices)
    has_ranking = name == "specvocab"
    if has_ranking and spec.head_vocab_size != spec.vocab_size:
        expected = "null or vocab_size beside a speculative vocabulary"
        raise config.error("draft_vocab_size", expected, str(spec.head_vocab_size))
    tied = spec.own_head and "lm_head.weight" not in tensors.shapes
    check_draft_tensors(_with_features(spec, tensors), tensors, has_ranking=has_ranking, tied_head=tied)
    if tied:
        _check_tied(spec, config)
        tensors.share("lm_head.weight", "embed_tokens.weight")
    if "norm.weight" not in tensors.shapes:
        tensors.set_unused("norm.weight", np.ones(spec.hidden_size, np.float32))
    if tensors.harmless:
        choices.append(f"tensors that the draft does not compute with: {', '.join(tensors.harmless)}.")
    maps = StoredMaps(**{k: tensors.read_integers(n) for k, n in _MAPS.items()})
    target_ids = resolve_target_ids(
        maps, head_vocab_size=spec.head_vocab_size, vocab_size=spec.vocab_size, where=str(path), choices=choices
    )
    ranking = None
    if has_ranking:
        ranking = read_ranking(config, tensors, hidden_size=spec.hidden_size, vocab_size=spec.vocab_size)
    return DraftCheckpoint(
        path=path,
        format=name,
        spec=spec,
        weights=tensors,
        target_ids=target_ids,
        ranking=ranking,
        choices=choices,
        target_sha256=_read_target_sha256(config),
    )


_MAPS = {"offsets": OFFSETS, "mask": MASK, "direct_ids": DIRECT_IDS}


def _with_features(spec: DraftSpec, tensors: DraftTensors) -> DraftSpec:
    """With as many feature layers as ``fc`` has, for the shapes, where which they are is not known."""
    if spec.feature_layers:
        return spec
    return replace(spec, feature_layers=(0,) * (tensors.shapes["fc.weight"][1] // spec.target_hidden_size))


def _check_tied(spec: DraftSpec, config: Config) -> None:
    if spec.head_vocab_size != spec.vocab_size:
        raise config.error(
            "tie_word_embeddings", f"false, for a head of {spec.head_vocab_size} of {spec.vocab_size} rows", "true"
        )


def _read_target_sha256(config: Config) -> str | None:
    section = config.section("draftsmith")
    if section is None or not section.has("target_sha256"):
        return None
    value = section.text("target_sha256").lower()
    if len(value) != 64 or any(c not in "0123456789abcdef" for c in value):
        raise CheckpointError(
            "config key `target_sha256`", expected="64 hexadecimal digits", found=repr(value)[:80], where=section.where
        )
    return value
