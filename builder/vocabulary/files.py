"""Files of rankings and subsets: safetensors with what they belong to, checked strictly when they are read.

A ranking's token matrix is stored as 8-bit codes with a scale a row, the engine's own: nothing is rounded twice.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from draftsmith.plugins.packing import round_rows

from ..errors import CheckpointError
from ..spec.ranking import Ranking

Array = npt.NDArray[Any]
_KINDS = {"ranking": "draftsmith-ranking", "subset": "draftsmith-subset"}
_VERSION = "1"
_RANKING_TENSORS = {"down": "float32", "vocabulary": "int8", "vocabulary_scales": "float32"}
_OPTIONAL_TENSORS = {"groups": "int32", "prior": "float32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyFacts:
    """What a file belongs to: ``target_sha256`` (``hash_checkpoint``), ``draft`` ("" for the target's own states),
    rows of the head; ``date`` (ISO 8601, UTC) and ``notes`` (plain JSON values: method, recall, adaptive table)."""

    target_sha256: str
    draft: str
    vocab_size: int
    date: str
    notes: Mapping[str, Any]

    @property
    def recall(self) -> Mapping[str, Any]:
        """What was measured when the file was made (``fit.summarize``); empty where nothing was."""
        return self.notes.get("recall", {})  # type: ignore[no-any-return]


def make_facts(target_sha256: str, draft: str, vocab_size: int, notes: Mapping[str, Any]) -> VocabularyFacts:
    """Facts of a file made now."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return VocabularyFacts(target_sha256=target_sha256, draft=draft, vocab_size=vocab_size, date=date, notes=notes)


def save_ranking(path: Path, ranking: Ranking, facts: VocabularyFacts) -> None:
    """Write beside and rename."""
    codes, scales = round_rows(ranking.vocabulary)
    tensors: dict[str, Array] = {
        "down": np.asarray(ranking.down, np.float32),
        "vocabulary": codes,
        "vocabulary_scales": scales,
    }
    if ranking.groups is not None:
        tensors["groups"] = np.asarray(ranking.groups, np.int32)
    if ranking.prior is not None:
        tensors["prior"] = np.asarray(ranking.prior, np.float32)
    extra = {
        "rank": str(ranking.rank),
        "num_candidates": str(ranking.num_candidates),
        "is_exact": json.dumps(ranking.is_exact),
    }
    _save(path, "ranking", tensors, facts, extra)


def load_ranking(path: Path, *, target_sha256: str | None = None) -> tuple[Ranking, VocabularyFacts]:
    """Raises ``CheckpointError`` for a file that is no ranking, is damaged, or belongs to another target.

    ``target_sha256``: the target it must have been fitted for; None: any.
    """
    tensors, metadata, facts = _load(path, "ranking", target_sha256)
    _check_tensors(path, tensors)
    groups = tensors.get("groups")
    try:
        rank, num_candidates = int(metadata["rank"]), int(metadata["num_candidates"])
        is_exact = json.loads(metadata["is_exact"]) is True
    except (KeyError, ValueError) as error:
        raise _wrong(path, "ranking metadata", "rank, num_candidates, is_exact", str(error)) from error
    if rank != len(tensors["down"]) or not 1 <= num_candidates <= facts.vocab_size:
        found = f"rank {rank} for {len(tensors['down'])} rows, k {num_candidates} of {facts.vocab_size}"
        raise _wrong(path, "ranking metadata", "the rank of `down`, and k within the vocabulary", found)
    rows = facts.vocab_size if groups is None else len(groups)
    if len(tensors["vocabulary"]) != rows:
        raise _wrong(path, "tensor `vocabulary`", f"{rows} rows", str(len(tensors["vocabulary"])))
    if groups is not None:
        _check_ids(path, "groups", groups[groups >= 0], facts.vocab_size, facts.vocab_size)
    vocabulary = tensors["vocabulary"].astype(np.float32) * tensors["vocabulary_scales"][:, None]
    ranking = Ranking(
        down=tensors["down"],
        vocabulary=vocabulary,
        num_candidates=num_candidates,
        groups=groups,
        prior=tensors.get("prior"),
        is_exact=is_exact,
    )
    return ranking, facts


def save_subset(path: Path, target_ids: npt.NDArray[np.int32], facts: VocabularyFacts) -> None:
    """``target_ids`` [n], distinct; ``.npy`` holds the ids alone, anything else is safetensors with the facts."""
    ids = np.asarray(target_ids, np.int32)
    if path.suffix == ".npy":
        _write(path, lambda part: _save_npy(part, ids))
    else:
        _save(path, "subset", {"target_ids": ids}, facts, {})


def load_subset(
    path: Path, *, vocab_size: int, target_sha256: str | None = None
) -> tuple[npt.NDArray[np.int32], VocabularyFacts | None]:
    """Ids int32 [n] in the file's order, and its facts (None for ``.npy``).

    Raises ``CheckpointError`` as ``load_ranking`` does, and for ids that are out of range or given twice.
    """
    facts: VocabularyFacts | None = None
    if path.suffix == ".npy":
        try:
            ids = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise _wrong(path, "subset", "a .npy file of ids", str(error)) from error
    else:
        tensors, _, facts = _load(path, "subset", target_sha256)
        if set(tensors) != {"target_ids"}:
            raise _wrong(path, "subset", "the tensor `target_ids` alone", ", ".join(sorted(tensors)) or "none")
        ids = tensors["target_ids"]
    if ids.ndim != 1 or not len(ids) or ids.dtype.kind not in "iu":
        raise _wrong(path, "subset", "whole numbers [n]", f"{ids.dtype} {list(ids.shape)}")
    _check_ids(path, "target_ids", ids, vocab_size, None)
    return ids.astype(np.int32), facts


def _save(
    path: Path, kind: str, tensors: Mapping[str, Array], facts: VocabularyFacts, extra: Mapping[str, str]
) -> None:
    from safetensors.numpy import save_file  # noqa: PLC0415 (optional extra)

    metadata = {
        "format": _KINDS[kind],
        "version": _VERSION,
        "target_sha256": facts.target_sha256,
        "draft": facts.draft,
        "vocab_size": str(facts.vocab_size),
        "date": facts.date,
        "notes": json.dumps(dict(facts.notes), sort_keys=True),
        **extra,
    }
    arrays = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    _write(path, lambda part: save_file(arrays, str(part), metadata))


def _write(path: Path, write: Any) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        write(part)
        os.replace(part, path)  # noqa: PTH105 (atomic on every system)
    finally:
        part.unlink(missing_ok=True)


def _save_npy(part: Path, ids: npt.NDArray[np.int32]) -> None:
    with part.open("wb") as file:
        np.save(file, ids, allow_pickle=False)


def is_subset_file(path: Path) -> bool:
    """Whether a vocabulary file holds a subset. Raises ``CheckpointError`` where it is no whole file of either kind."""
    if path.suffix == ".npy":
        return True
    with _open_file(path, "vocabulary file") as file:
        return dict(file.metadata() or {}).get("format") == _KINDS["subset"]


@contextmanager
def _open_file(path: Path, subject: str) -> Iterator[Any]:
    """A safetensors file; raises ``CheckpointError`` about ``subject`` where it is none."""
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 (optional extra)

    try:
        with safe_open(str(path), framework="np") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise _wrong(path, subject, "a safetensors file", str(error)) from error


def _load(path: Path, kind: str, target_sha256: str | None) -> tuple[dict[str, Array], dict[str, str], VocabularyFacts]:
    with _open_file(path, f"{kind} file") as file:
        metadata = dict(file.metadata() or {})
        if metadata.get("format") != _KINDS[kind] or metadata.get("version") != _VERSION:
            found = f"{metadata.get('format', 'another file')} {metadata.get('version', '')}".strip()
            raise _wrong(path, f"{kind} file", f"{_KINDS[kind]} {_VERSION}", found)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    try:
        facts = VocabularyFacts(
            target_sha256=metadata["target_sha256"],
            draft=metadata["draft"],
            vocab_size=int(metadata["vocab_size"]),
            date=metadata["date"],
            notes=json.loads(metadata["notes"]),
        )
    except (KeyError, ValueError) as error:
        raise _wrong(path, f"{kind} metadata", "target_sha256, draft, vocab_size, date, notes", str(error)) from error
    if target_sha256 is not None and facts.target_sha256 != target_sha256:
        raise CheckpointError(
            f"{kind} file's target",
            expected=f"sha256 {target_sha256}",
            found=f"sha256 {facts.target_sha256}",
            where=str(path),
            action="Make the file again from this target.",
        )
    return tensors, metadata, facts


def _check_tensors(path: Path, tensors: Mapping[str, Array]) -> None:
    """Names, types, and shapes that belong together; finite numbers."""
    missing, known = set(_RANKING_TENSORS) - set(tensors), {**_RANKING_TENSORS, **_OPTIONAL_TENSORS}
    if missing or set(tensors) - set(known):
        raise _wrong(path, "ranking", f"tensors {', '.join(_RANKING_TENSORS)}", ", ".join(sorted(tensors)) or "none")
    dimensions = {"down": 2, "vocabulary": 2, "vocabulary_scales": 1, "groups": 2, "prior": 1}
    for name, value in tensors.items():
        if value.dtype != known[name] or value.ndim != dimensions[name]:
            expected = f"{known[name]} of {dimensions[name]} dimensions"
            raise _wrong(path, f"tensor `{name}`", expected, f"{value.dtype} {list(value.shape)}")
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise _wrong(path, f"tensor `{name}`", "finite numbers", "NaN or infinity")
    rows, rank = tensors["vocabulary"].shape
    if len(tensors["down"]) != rank:
        raise _wrong(path, "tensor `down`", f"{rank} rows", str(len(tensors["down"])))
    for name in ("vocabulary_scales", "prior"):
        if name in tensors and len(tensors[name]) != rows:
            raise _wrong(path, f"tensor `{name}`", f"{rows} numbers", str(len(tensors[name])))


def _check_ids(path: Path, name: str, ids: Array, vocab_size: int, count: int | None) -> None:
    if len(ids) and not (int(ids.min()) >= 0 and int(ids.max()) < vocab_size):
        raise _wrong(path, f"`{name}`", f"ids 0 to {vocab_size - 1}", f"{int(ids.min())} to {int(ids.max())}")
    distinct = len(np.unique(ids))
    if distinct != len(ids) or (count is not None and distinct != count):
        wanted = "every id once" if count is not None else "each id once"
        raise _wrong(path, f"`{name}`", wanted, f"{len(ids)} ids, {distinct} distinct")


def _wrong(path: Path, subject: str, expected: str, found: str) -> CheckpointError:
    return CheckpointError(subject, expected=expected, found=found, where=str(path))
