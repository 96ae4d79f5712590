"""A draft engine in ONNX Runtime: two graphs over one cache, for the first step of a block and for those behind it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...contract.manifest import DraftEngine, Manifest
from ..candidates import rank_candidates
from ..errors import EngineError
from .base import DraftInputs, DraftOutputs
from .kv_cache import KvCache
from .ort_binding import MAX_BINDINGS, bind_input, bind_output, find_runs, is_native, load_graph


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What a binding depends on; ``num_columns``: U of the mask."""

    is_first: bool
    first_slot: int
    num_rows: int
    num_tokens: int
    num_columns: int
    num_logits: int


@dataclass(frozen=True, slots=True)
class _Bound:
    """An I/O binding with the arrays that it reads and writes."""

    binding: Any
    inputs: dict[str, npt.NDArray[Any]]
    outputs: dict[str, npt.NDArray[Any]]


class OnnxRuntimeDraftSession:
    """See ``DraftSession``."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        *,
        num_threads: int,
        num_slots: int,
        num_candidates: int | None = None,
    ) -> None:
        """Load the draft of ``folder``; raises ``EngineError`` where there is none or ONNX Runtime refuses it."""
        draft = manifest.draft
        if draft is None:
            raise EngineError("draft", expected="an engine with a draft model", found="one without", where=str(folder))
        self._draft: DraftEngine = draft
        self._vocab_size = manifest.vocab_size
        if num_candidates is not None and not (draft.is_native and draft.head in ("speculative", "grouped")):
            raise EngineError(
                "num_candidates",
                expected="an INT8 engine with our own operators and a speculative or grouped head",
                found=f"{manifest.precision}, {draft.head}",
                where=str(folder),
            )
        self._num_candidates = num_candidates or 0
        self._num_slots = num_slots
        self._max_query_len = manifest.max_query_len
        self._next = load_graph(folder, draft.next_graph, manifest, num_threads)
        self._first = self._next
        if draft.first_graph is not None:
            self._first = load_graph(folder, draft.first_graph, manifest, num_threads)
        self._widths = {o.name: o.shape[-1] for o in self._next.get_outputs()}
        self._min_query_len = 1 if draft.is_native else manifest.min_query_len
        self._cache = KvCache(draft.kv_cache, num_slots, is_grouped=is_native(manifest))
        self._bindings: dict[_Shape, _Bound] = {}

    @property
    def num_slots(self) -> int:
        """Rows of the cache."""
        return self._num_slots

    @property
    def max_query_len(self) -> int:
        """Most tokens a row takes in one step."""
        return self._max_query_len

    @property
    def feature_size(self) -> int:
        """Width of ``features``, 0 where none are read."""
        return self._draft.feature_size

    @property
    def hidden_size(self) -> int:
        """Width of ``hidden``, 0 where none is read."""
        return self._draft.hidden_size

    @property
    def window(self) -> int:
        """Keys at distance < window, 0 for all."""
        return self._draft.window

    @property
    def num_outputs(self) -> int:
        """Candidates a row."""
        return min(self._draft.num_outputs, self._vocab_size)

    def step(self, inputs: DraftInputs) -> DraftOutputs:
        """See ``DraftSession.step``; raises ``EngineError`` where the runtime fails."""
        parts = [self._run(inputs, slice(first, last)) for first, last in find_runs(inputs.slots)]
        joined = parts[0] if len(parts) == 1 else _join(parts)
        if self._draft.is_native:
            ids, logits, log_sum_exp = (joined[name] for name in ("candidate_ids", "candidate_logits", "log_sum_exp"))
        else:
            ids, logits, log_sum_exp = rank_candidates(
                joined["candidate_logits"], joined.get("candidate_ids"), inputs, self.num_outputs
            )
        return DraftOutputs(token_ids=ids, logits=logits, log_sum_exp=log_sum_exp, hidden=joined.get("hidden_out"))

    def copy_slot(self, source: int, destination: int, num_tokens: int) -> None:
        """See ``DraftSession.copy_slot``."""
        self._cache.copy_slot(source, destination, num_tokens)

    def close(self) -> None:
        """Free the engine and the cache."""
        self._bindings.clear()
        self._cache.close()
        self._first = self._next = None

    def _run(self, inputs: DraftInputs, rows: slice) -> dict[str, npt.NDArray[Any]]:
        num_tokens, num_columns = inputs.tree_mask.shape[1:]
        extra = max(self._min_query_len - num_tokens, 0)
        shape = _Shape(
            is_first=inputs.features is not None,
            first_slot=int(inputs.slots[rows.start]),
            num_rows=rows.stop - rows.start,
            num_tokens=num_tokens + extra,
            num_columns=num_columns + extra,
            num_logits=inputs.logits_index.shape[1],
        )
        bound = self._bindings.get(shape) or self._bind(shape)
        _fill(bound.inputs, inputs, rows, self._min_query_len)
        session = self._first if shape.is_first else self._next
        try:
            session.run_with_iobinding(bound.binding)
        except Exception as error:
            raise EngineError("ONNX Runtime draft step", found=str(error)) from error
        return bound.outputs

    def _bind(self, shape: _Shape) -> _Bound:
        if len(self._bindings) >= MAX_BINDINGS:
            self._bindings.clear()
        session = self._first if shape.is_first else self._next
        bound = _Bound(session.io_binding(), self._make_inputs(shape), self._make_outputs(shape))
        for name, array in bound.inputs.items():
            bind_input(bound.binding, name, array)
        for name, array in bound.outputs.items():
            bind_output(bound.binding, name, array)
        for name, array in self._cache.arrays.items():
            rows = array[shape.first_slot : shape.first_slot + shape.num_rows]
            bind_input(bound.binding, f"past_{name}", rows)
            bind_output(bound.binding, f"present_{name}", rows)
        self._bindings[shape] = bound
        return bound

    def _make_inputs(self, shape: _Shape) -> dict[str, npt.NDArray[Any]]:
        b, t, n = shape.num_rows, shape.num_tokens, shape.num_logits
        arrays: dict[str, npt.NDArray[Any]] = {
            "token_ids": np.zeros((b, t), np.int32),
            "positions": np.zeros((b, t), np.int32),
            "past_lengths": np.zeros(b, np.int32),
            "query_lengths": np.zeros(b, np.int32),
            "tree_mask": np.zeros((b, t, shape.num_columns), np.bool_),
            "logits_index": np.zeros((b, n), np.int32),
        }
        if shape.is_first:
            arrays["features"] = np.zeros((b, t, self._draft.feature_size), np.float32)
        elif self._draft.hidden_size:
            arrays["hidden"] = np.zeros((b, t, self._draft.hidden_size), np.float32)
        if self._draft.is_native:
            arrays["noise_keys"] = np.zeros((b, n), np.int64)
            arrays["inverse_temperature"] = np.zeros((b, n), np.float32)
            arrays["num_candidates"] = np.full((b, n), self._num_candidates, np.int32)
        return arrays

    def _make_outputs(self, shape: _Shape) -> dict[str, npt.NDArray[Any]]:
        b, n = shape.num_rows, shape.num_logits
        arrays: dict[str, npt.NDArray[Any]] = {}
        for name, dtype in (("candidate_ids", np.int32), ("candidate_logits", np.float32), ("hidden_out", np.float32)):
            if name in self._widths:
                arrays[name] = np.zeros((b, n, self._widths[name]), dtype)
        if "log_sum_exp" in self._widths:
            arrays["log_sum_exp"] = np.zeros((b, n), np.float32)
        return arrays


def _fill(arrays: dict[str, npt.NDArray[Any]], inputs: DraftInputs, rows: slice, min_query_len: int) -> None:
    """Copy a run's inputs; tokens beyond the block are dummies that see themselves alone."""
    num_tokens, num_columns = inputs.tree_mask.shape[1:]
    arrays["token_ids"][:, :num_tokens] = inputs.token_ids[rows]
    arrays["positions"][:, :num_tokens] = inputs.positions[rows]
    arrays["past_lengths"][:] = inputs.past_lengths[rows]
    np.maximum(inputs.query_lengths[rows], min_query_len, out=arrays["query_lengths"])
    mask = arrays["tree_mask"]
    mask[:, :num_tokens, :num_columns] = inputs.tree_mask[rows]
    for extra in range(num_tokens, mask.shape[1]):
        mask[:, extra, num_columns + extra - num_tokens] = True
    arrays["logits_index"][:] = inputs.logits_index[rows]
    if inputs.features is not None:
        arrays["features"][:, :num_tokens] = inputs.features[rows]
    elif inputs.hidden is not None:
        arrays["hidden"][:, :num_tokens] = inputs.hidden[rows]
    if "noise_keys" in arrays:
        arrays["noise_keys"][:] = inputs.noise_keys[rows]
        arrays["inverse_temperature"][:] = inputs.inverse_temperature[rows]


def _join(parts: list[dict[str, npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
