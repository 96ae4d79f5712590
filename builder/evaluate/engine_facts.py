"""What the report says of an engine besides its speed: read from engine.json."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
from draftsmith.model_repo.contract.manifest import MANIFEST_NAME, Manifest
from draftsmith.model_repo.runtime.loading import read_manifest

from ..errors import UsageError
from .configuration import Configuration

VERSION_FOLDER = "1"
DRAFT_PREFIX = "draft"
"""Of the names of the files that a draft adds to an engine."""
SCORES_ALONE = "scores_alone"
"""In ``draft.quality``: the ranking's scores are the draft's logits, nothing is computed exactly."""
_RANKING_HEADS = ("speculative", "grouped")
_RANKING_TENSOR = "ranking."


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """``target_key``: equal where two engines have the same target, so that one baseline serves both.

    ``draft_bytes``: files that the draft adds, ``ranking_bytes`` of them the ranking's; ``slot_bytes``: its cache of
    one request. ``recall``: share of the head's most probable tokens that are among the k best ranked (or in a subset
    of k), by k. ``num_candidates``: the engine's own k, 0 without a ranking; ``recall_k``: the k whose recall counts,
    1 where the ranking's scores stand for logits (``has_scores_alone``).
    """

    folder: Path
    model_name: str
    precision: str
    backend: str
    target_key: tuple[str, ...]
    is_chat: bool
    max_length: int
    has_draft: bool
    draft_name: str
    head: str
    num_candidates: int
    has_scores_alone: bool
    target_bytes: int
    draft_bytes: int
    ranking_bytes: int
    slot_bytes: int
    recall: dict[int, float]
    recall_k: int

    @property
    def label(self) -> str:
        """``smollm2 int8``."""
        return f"{self.model_name} {self.precision}"

    @property
    def extra_share(self) -> float:
        """What the draft's files add to the target's, as a share."""
        return self.draft_bytes / self.target_bytes if self.target_bytes else 0.0

    @property
    def ranking_share(self) -> float:
        """What the ranking alone adds to the target's files, as a share."""
        return self.ranking_bytes / self.target_bytes if self.target_bytes else 0.0


def read_facts(configuration: Configuration) -> EngineFacts:
    """The facts of a configuration's engine; its folder may be the package's or the engine's own.

    Raises:
        UsageError: there is no engine, or it has not what the configuration asks for.
        ManifestError: engine.json is not what it says.
    """
    folder = find_engine(configuration.folder)
    manifest = read_manifest(folder)
    ranking_bytes = count_ranking_bytes(folder / manifest.draft.next_graph) if manifest.draft else 0
    facts = replace(describe_manifest(folder, manifest), ranking_bytes=ranking_bytes)
    wants = f"configuration {configuration.name}"
    if configuration.draft == "model" and not facts.has_draft:
        raise UsageError(wants, expected="an engine with a draft model", found="none", where=str(folder))
    if configuration.num_candidates is not None and facts.head not in _RANKING_HEADS:
        expected = "an engine with a speculative vocabulary, for k"
        raise UsageError(wants, expected=expected, found=facts.head or "no draft", where=str(folder))
    if (configuration.num_candidates or 0) > manifest.vocab_size:
        expected = f"k of at most {manifest.vocab_size}, the vocabulary"
        raise UsageError(wants, expected=expected, found=str(configuration.num_candidates), where=str(folder))
    return facts


def find_engine(folder: Path) -> Path:
    """The folder of engine.json: ``folder``, or the version folder in it. Raises ``UsageError`` where there is none."""
    for place in (folder, folder / VERSION_FOLDER):
        if (place / MANIFEST_NAME).is_file():
            return place
    raise UsageError("--config", expected="a folder with an engine", found=f"no {MANIFEST_NAME}", where=str(folder))


def count_ranking_bytes(graph: Path) -> int:
    """Bytes of a draft graph's ranking, wherever they are stored; 0 where there is no graph, or no ranking in it."""
    if not graph.is_file():
        return 0
    model = onnx.load(graph, load_external_data=False)
    found = [tensor for tensor in model.graph.initializer if _RANKING_TENSOR in tensor.name]
    types = [onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type) for tensor in found]
    return sum(math.prod(tensor.dims) * dtype.itemsize for tensor, dtype in zip(found, types, strict=True))


def describe_manifest(folder: Path, manifest: Manifest) -> EngineFacts:
    """The facts of a manifest; the ranking's bytes are in its graph, and 0 here."""
    own = [entry for entry in manifest.files if not entry.name.startswith(DRAFT_PREFIX)]
    draft = manifest.draft
    quality = draft.quality if draft else {}
    has_scores_alone = quality.get(SCORES_ALONE) is True
    return EngineFacts(
        folder=folder,
        model_name=manifest.model_name,
        precision=manifest.precision,
        backend=manifest.backend,
        target_key=_target_key(manifest),
        is_chat=manifest.chat_template_file is not None,
        max_length=manifest.max_length,
        has_draft=draft is not None,
        draft_name=draft.name if draft else "",
        head=draft.head if draft else "",
        num_candidates=draft.num_candidates if draft and draft.head in _RANKING_HEADS else 0,
        has_scores_alone=has_scores_alone,
        target_bytes=sum(entry.num_bytes for entry in own),
        draft_bytes=sum(entry.num_bytes for entry in manifest.files) - sum(entry.num_bytes for entry in own),
        ranking_bytes=0,
        slot_bytes=draft.kv_cache.slot_bytes if draft else 0,
        recall=read_recall(quality),
        recall_k=1 if has_scores_alone else draft.num_candidates if draft else 0,
    )


def read_recall(quality: Mapping[str, object]) -> dict[int, float]:
    """``quality["recall"]`` as recall by k, smallest k first; what is no share is left out.

    It is what ``fit-vocabulary`` measured, ``recall`` at ``num_candidates`` and (``by_k``) at others, or by k alone;
    JSON has its k as strings.
    """
    found = quality.get("recall")
    if not isinstance(found, Mapping):
        return {}
    by_k = found.get("by_k")
    given = {**(by_k if isinstance(by_k, Mapping) else found), found.get("num_candidates"): found.get("recall")}
    numbers = {
        int(k): float(value)
        for k, value in given.items()
        if str(k).isdigit() and isinstance(value, (int, float)) and 0 <= value <= 1
    }
    return dict(sorted(numbers.items()))


def _target_key(manifest: Manifest) -> tuple[str, ...]:
    """Checksums of the target's weights, or of its graph where the weights are in it."""
    own = [entry for entry in manifest.files if not entry.name.startswith(DRAFT_PREFIX)]
    weights = sorted(entry.sha256 for entry in own if entry.name.endswith(".weights"))
    return tuple(weights or sorted(entry.sha256 for entry in own if entry.name == manifest.graph_file))
