"""A target engine in ONNX Runtime: one cache array a tensor, bound by address as input and output of every step."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from ...contract.manifest import Manifest
from ..errors import EngineError
from .base import DraftSession, FloatArray, StepInputs, StepOutputs
from .kv_cache import KvCache
from .ort_binding import MAX_BINDINGS, bind_input, bind_output, find_runs, is_native, load_graph


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What a binding depends on: ``num_rows`` slots from ``first_slot`` on, their outputs from ``first_row`` on."""

    first_slot: int
    first_row: int
    num_rows: int
    num_tokens: int
    num_logits: int


@dataclass(frozen=True, slots=True)
class _Bound:
    """An I/O binding and the small arrays that it reads."""

    binding: Any
    token_ids: npt.NDArray[np.int32]  # [B, T]
    positions: npt.NDArray[np.int32]  # [B, T]
    past_lengths: npt.NDArray[np.int32]  # [B]
    query_lengths: npt.NDArray[np.int32]  # [B]
    tree_mask: npt.NDArray[np.bool_]  # [B, T, T]
    logits_index: npt.NDArray[np.int32]  # [B, N]


class OnnxRuntimeSession:
    """See ``TargetSession``. Rows in consecutive slots run as one call; a step over scattered slots as several."""

    def __init__(self, folder: Path, manifest: Manifest, *, num_threads: int, num_slots: int) -> None:
        """Load the engine of ``folder``; raises ``EngineError`` where ONNX Runtime refuses it."""
        cache = manifest.kv_cache
        self._session = load_graph(folder, manifest.graph_file, manifest, num_threads)
        self._min_query_len = manifest.min_query_len
        self._num_slots = num_slots
        self._capacity = cache.capacity
        self._max_length = manifest.max_length
        self._max_query_len = manifest.max_query_len
        self._vocab_size = manifest.vocab_size
        width = [o.shape[2] for o in self._session.get_outputs() if o.name == "features"]
        self._feature_size = int(width[0]) if width else 0
        self._cache = KvCache(cache, num_slots, is_grouped=is_native(manifest))
        self._logits: FloatArray = np.empty(0, np.float32)
        self._features: FloatArray = np.empty(0, np.float32)
        self._bindings: dict[_Shape, _Bound] = {}

    @property
    def num_slots(self) -> int:
        """Rows of the cache."""
        return self._num_slots

    @property
    def capacity(self) -> int:
        """Tokens that a slot can hold."""
        return self._max_length

    @property
    def vocab_size(self) -> int:
        """V."""
        return self._vocab_size

    @property
    def max_query_len(self) -> int:
        """Most tokens a row takes in one step."""
        return self._max_query_len

    @property
    def min_query_len(self) -> int:
        """Shorter steps are padded: ONNX Runtime's own operators compute one token differently from two."""
        return self._min_query_len

    def step(self, inputs: StepInputs) -> StepOutputs:
        """See ``TargetSession.step``; raises ``EngineError`` where the runtime fails."""
        num_rows, num_tokens = inputs.token_ids.shape
        num_logits = inputs.logits_index.shape[1]
        padded = max(num_tokens, self._min_query_len)
        self._check(inputs, padded)
        self._grow_outputs(num_rows * num_logits, num_rows * padded)
        for first, last in find_runs(inputs.slots):
            shape = _Shape(
                first_slot=int(inputs.slots[first]),
                first_row=first,
                num_rows=last - first,
                num_tokens=padded,
                num_logits=num_logits,
            )
            bound = self._bindings.get(shape) or self._bind(shape)
            _fill(bound, inputs, slice(first, last), self._min_query_len)
            try:
                self._session.run_with_iobinding(bound.binding)
            except Exception as error:
                raise EngineError("ONNX Runtime step", found=str(error)) from error
        return self._outputs(num_rows, num_tokens, padded, num_logits)

    @property
    def exact_trees(self) -> bool:
        """Our own operators add up what a token sees in one order; ONNX Runtime's depend on where it lies."""
        return self._cache.is_grouped

    def keep_path(self, slot: int, start: int, sources: Sequence[int]) -> None:
        """See ``TargetSession.keep_path``."""
        self._cache.move_tokens(slot, start, sources)

    def copy_slot(self, source: int, destination: int, num_tokens: int) -> None:
        """See ``TargetSession.copy_slot``."""
        self._cache.copy_slot(source, destination, num_tokens)

    def close(self) -> None:
        """Free the engine and the cache."""
        self._bindings.clear()
        self._cache.close()
        self._session = None

    def _check(self, inputs: StepInputs, padded: int) -> None:
        longest = int(inputs.past_lengths.max()) + padded
        if longest > self._capacity or padded > max(self._max_query_len, self._min_query_len):
            raise EngineError(
                "step",
                expected=f"at most {self._max_query_len} tokens a row and {self._capacity} with the cached ones",
                found=f"{padded} and {longest}",
            )

    def _grow_outputs(self, logits_rows: int, feature_rows: int) -> None:
        """Buffers only grow; bindings hold their addresses, so growing drops the bindings."""
        if self._logits.size < logits_rows * self._vocab_size:
            self._logits = np.empty(logits_rows * self._vocab_size, np.float32)
            self._bindings.clear()
        if self._features.size < feature_rows * self._feature_size:
            self._features = np.empty(feature_rows * self._feature_size, np.float32)
            self._bindings.clear()

    def _outputs(self, num_rows: int, num_tokens: int, padded: int, num_logits: int) -> StepOutputs:
        size = num_rows * num_logits * self._vocab_size
        logits = self._logits[:size].reshape(num_rows, num_logits, self._vocab_size)
        features = None
        if self._feature_size:
            size = num_rows * padded * self._feature_size
            features = self._features[:size].reshape(num_rows, padded, self._feature_size)[:, :num_tokens]
        return StepOutputs(logits=logits, features=features)

    def _bind(self, shape: _Shape) -> _Bound:
        if len(self._bindings) >= MAX_BINDINGS:
            self._bindings.clear()
        b, t, n = shape.num_rows, shape.num_tokens, shape.num_logits
        bound = _Bound(
            self._session.io_binding(),
            np.zeros((b, t), np.int32),
            np.zeros((b, t), np.int32),
            np.zeros(b, np.int32),
            np.zeros(b, np.int32),
            np.zeros((b, t, t), np.bool_),
            np.zeros((b, n), np.int32),
        )
        for name in ("token_ids", "positions", "past_lengths", "query_lengths", "tree_mask", "logits_index"):
            bind_input(bound.binding, name, getattr(bound, name))
        for name, array in self._cache.arrays.items():
            rows = array[shape.first_slot : shape.first_slot + b]
            bind_input(bound.binding, f"past_{name}", rows)
            bind_output(bound.binding, f"present_{name}", rows)
        row_size = n * self._vocab_size
        logits = self._logits[shape.first_row * row_size :][: b * row_size]
        bind_output(bound.binding, "logits", logits.reshape(b, n, self._vocab_size))
        if self._feature_size:
            row_size = t * self._feature_size
            features = self._features[shape.first_row * row_size :][: b * row_size]
            bind_output(bound.binding, "features", features.reshape(b, t, self._feature_size))
        self._bindings[shape] = bound
        return bound


def open_session(folder: Path, manifest: Manifest, *, num_threads: int, num_slots: int) -> OnnxRuntimeSession:
    """Load the engine in ``folder`` with a cache of ``num_slots`` rows; raises ``EngineError``."""
    return OnnxRuntimeSession(folder, manifest, num_threads=num_threads, num_slots=num_slots)


def open_draft_session(
    folder: Path, manifest: Manifest, *, num_threads: int, num_slots: int, num_candidates: int | None = None
) -> DraftSession:
    """Load the draft of the engine in ``folder``; ``num_candidates`` None takes the engine's own.

    Raises ``EngineError``.
    """
    from .onnxruntime_draft import OnnxRuntimeDraftSession  # noqa: PLC0415 (most engines have no draft)

    return OnnxRuntimeDraftSession(
        folder, manifest, num_threads=num_threads, num_slots=num_slots, num_candidates=num_candidates
    )


def find_machine_facts() -> dict[str, str]:
    """The version of ONNX Runtime, and the kind of processor."""
    return {"onnxruntime": str(ort.__version__), "machine": platform.machine()}


def _fill(bound: _Bound, inputs: StepInputs, rows: slice, min_query_len: int) -> None:
    """Copy a run's inputs; what lies behind a row's tokens sees itself alone, dummies included."""
    num_tokens = inputs.token_ids.shape[1]
    bound.token_ids[:, :num_tokens] = inputs.token_ids[rows]
    bound.positions[:, :num_tokens] = inputs.positions[rows]
    bound.past_lengths[:] = inputs.past_lengths[rows]
    np.maximum(inputs.query_lengths[rows], min_query_len, out=bound.query_lengths)
    bound.tree_mask[:, :num_tokens, :num_tokens] = inputs.tree_mask[rows]
    bound.logits_index[:] = inputs.logits_index[rows]
