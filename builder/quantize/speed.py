"""How long a plain step takes in INT8, and about how long in FP16: told at build time, since INT8 may be the slower.

A whole FP16 engine would need more memory than the build may use. Two truncated ones (one layer and two, the head on
both) are timed instead, and the difference stands for every further layer. Their weights are stored as FP32, which is
what a session unfolds FP16 to.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from draftsmith.model_repo.contract.manifest import Manifest
from draftsmith.model_repo.runtime.sessions.base import StepInputs, TargetSession

from ..checkpoint.source import Checkpoint
from ..graph.target_graph import GraphOptions, ReadsTensors, write_target_graph
from ..progress import Silent
from ..spec.target import ModelSpec

CACHED_TOKENS = 100
REPEATS = 15
OpenSession = Callable[[Path, Manifest], TargetSession]


@dataclass(frozen=True, slots=True)
class FirstLayers:
    """A ``Target`` that ends early."""

    spec: ModelSpec
    weights: ReadsTensors


def measure_step_ms(session: TargetSession) -> float:
    """Least milliseconds of a step of one token behind ``CACHED_TOKENS`` (or what fits), in slot 0."""
    cached = min(CACHED_TOKENS, session.capacity // 2)
    for start in range(0, cached, session.max_query_len):
        session.step(_inputs(start, min(session.max_query_len, cached - start)))
    step = _inputs(cached, 1)
    session.step(step)
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        session.step(step)
        times.append(1e3 * (time.perf_counter() - started))
    return min(times)


def estimate_float_ms(checkpoint: Checkpoint, manifest: Manifest, folder: Path, open_session: OpenSession) -> float:
    """About what a step would take in FP16; works in a folder of its own beside ``folder``."""
    times = [_truncated_ms(checkpoint, manifest, folder, open_session, layers) for layers in (1, 2)]
    return times[0] + max(times[1] - times[0], 0.0) * (checkpoint.spec.num_layers - 1)


def _truncated_ms(
    checkpoint: Checkpoint, manifest: Manifest, folder: Path, open_session: OpenSession, num_layers: int
) -> float:
    kinds = (checkpoint.spec.layer_kinds * 2)[:num_layers]
    target: Any = FirstLayers(replace(checkpoint.spec, num_layers=num_layers, layer_kinds=kinds), checkpoint.weights)
    cache = replace(manifest.kv_cache, num_layers=num_layers)
    options = GraphOptions(dialect="onnxruntime", storage="fp32", capacity=cache.capacity)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".speed-") as name:
        files = write_target_graph(target, options, Path(name), progress=Silent())
        short = replace(manifest, kv_cache=cache, graph_file=files.graph.name, files=[], requires={}, min_query_len=2)
        session = open_session(Path(name), short)
        try:
            return measure_step_ms(session)
        finally:
            session.close()


def _inputs(past: int, count: int) -> StepInputs:
    block = np.arange(count, dtype=np.int32)
    return StepInputs(
        slots=np.zeros(1, np.int32),
        token_ids=(block % 50 + 3)[None],
        positions=(past + block)[None],
        past_lengths=np.array([past], np.int32),
        query_lengths=np.array([count], np.int32),
        tree_mask=np.tril(np.ones((1, count, count), np.bool_)),
        logits_index=np.array([[count - 1]], np.int32),
    )
