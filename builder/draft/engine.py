"""Writes the draft's part of an engine folder, in which the target's part stands already."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from draftsmith.model_repo.contract.manifest import DraftEngine

from ..checkpoint.source import Checkpoint
from ..errors import BuildError
from ..graph.borrowed import StoredTensors
from ..graph.check import check_graph
from ..graph.draft_graph import (
    NEXT_NAME,
    WEIGHTS_NAME,
    DraftFiles,
    DraftGraphOptions,
    write_draft_graphs,
)
from ..graph.draft_heads import DraftHead
from ..graph.linear import Storage
from ..graph.target_graph import CandidateOutput, GraphOptions, cache_capacity, write_target_graph
from ..progress import Progress
from ..spec.cache import make_cache_spec
from ..spec.draft import DraftSpec, HeadKind
from .checkpoint import DraftCheckpoint
from .plan import DraftPlan

TREE_ROOM = 256
"""Columns behind the committed ones that a growing tree may take, whatever the target's longest step is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFiles:
    """The target's part of an engine folder and how it was built.

    ``storage``: of its float weights. ``is_native``: its graph has our own operators; the draft's then has too.
    ``calibration_text``: for a native language model as draft, None for the shipped one.
    """

    folder: Path
    graph_file: str
    storage: Storage
    is_native: bool
    max_length: int
    max_query_len: int
    calibration_text: str | None

    @property
    def capacity(self) -> int:
        """Columns of the draft's cache."""
        return cache_capacity(self.max_length, max(self.max_query_len, TREE_ROOM))


def write_draft_engine(
    plan: DraftPlan, target: Checkpoint, files: TargetFiles, *, progress: Progress
) -> tuple[DraftEngine, list[str]]:
    """What the manifest says of the draft, and the names of the files that were written.

    Raises ``UsageError`` for a plan whose parts do not go together, ``BuildError`` where writing fails.
    """
    plan.check()
    try:
        if isinstance(plan.draft, DraftCheckpoint):
            return _write_eagle(plan, plan.draft, target, files, progress)
        return _write_model(plan, plan.draft, target, files, progress)
    except OSError as error:
        raise BuildError("draft graph", found=str(error), where=str(files.folder)) from error


def _write_eagle(
    plan: DraftPlan, draft: DraftCheckpoint, target: Checkpoint, files: TargetFiles, progress: Progress
) -> tuple[DraftEngine, list[str]]:
    spec = _with_window(draft.spec, plan.window)
    head = _choose_head(plan, draft)
    options = DraftGraphOptions(
        dialect="native" if files.is_native else "onnxruntime",
        storage=files.storage,
        capacity=files.capacity,
        head=head,
        stored=StoredTensors(files.folder / files.graph_file),
    )
    written = write_draft_graphs(spec, draft.weights, target, options, files.folder, progress=progress)
    engine = DraftEngine(
        kind="eagle3",
        name=plan.name,
        format=draft.format,
        head=head.kind,
        is_native=files.is_native,
        first_graph=None if written.first is None else written.first.name,
        next_graph=written.next.name,
        feature_size=spec.feature_size,
        hidden_size=spec.hidden_size,
        num_outputs=plan.num_outputs,
        num_candidates=_count_candidates(head, spec.vocab_size),
        window=spec.window or 0,
        kv_cache=make_cache_spec(spec, files.capacity),
        spec=spec.to_dict(),
        quality={},
    )
    return engine, _check_files(written)


def _with_window(spec: DraftSpec, window: int | None) -> DraftSpec:
    return spec if window is None else replace(spec, window=window or None)


def _choose_head(plan: DraftPlan, draft: DraftCheckpoint) -> DraftHead:
    """A draft with a subset of its own has that, "full" or not."""
    kind: HeadKind = "subset" if draft.target_ids is not None else plan.head
    target_ids = plan.target_ids if draft.target_ids is None else draft.target_ids
    return DraftHead(
        kind=kind,
        ranking=plan.ranking,
        target_ids=None if kind != "subset" or target_ids is None else target_ids.astype(np.int32),
        has_own_rows=draft.target_ids is not None and draft.spec.own_head,
        num_outputs=plan.num_outputs,
    )


def _count_candidates(head: DraftHead, vocab_size: int) -> int:
    ranking = head.ranking
    if ranking is not None:
        size = 1 if ranking.groups is None else int(ranking.groups.shape[1])
        return min(max(1, ranking.num_candidates // size) * size, vocab_size)
    return vocab_size if head.target_ids is None else len(head.target_ids)


def _write_model(
    plan: DraftPlan, draft: Checkpoint, target: Checkpoint, files: TargetFiles, progress: Progress
) -> tuple[DraftEngine, list[str]]:
    spec = draft.spec
    options = GraphOptions(
        dialect="onnxruntime",
        storage=files.storage,
        capacity=files.capacity,
        candidates=CandidateOutput(num_vocab=target.spec.vocab_size, num_outputs=plan.num_outputs),
        graph_name=NEXT_NAME,
        weights_name=WEIGHTS_NAME,
    )
    if files.is_native:
        from ..quantize.native import plan_native  # noqa: PLC0415 (float builds do not quantize)

        exact = plan_native(draft, calibration_text=files.calibration_text, progress=progress)
        options = replace(options, dialect="native", linears=exact.linears, embedding=exact.embedding)
    graphs = write_target_graph(draft, options, files.folder, progress=progress)
    written = DraftFiles(first=None, next=graphs.graph, weights=graphs.weights, num_bytes=graphs.num_bytes)
    engine = DraftEngine(
        kind="model",
        name=plan.name,
        format=draft.format,
        head="full",
        is_native=files.is_native,
        first_graph=None,
        next_graph=graphs.graph.name,
        feature_size=0,
        hidden_size=0,
        num_outputs=plan.num_outputs,
        num_candidates=min(spec.vocab_size, target.spec.vocab_size),
        window=0,
        kv_cache=make_cache_spec(spec, files.capacity),
        spec=spec.to_dict(),
        quality={},
    )
    return engine, _check_files(written)


def _check_files(written: DraftFiles) -> list[str]:
    graphs = [path for path in (written.first, written.next) if path is not None]
    for path in graphs:
        check_graph(path)
    return [*(path.name for path in graphs), written.weights.name]
