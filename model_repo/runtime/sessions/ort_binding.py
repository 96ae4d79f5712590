"""What target and draft sessions of ONNX Runtime share: loading a graph, binding arrays by address, runs of slots."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnxruntime as ort
from draftsmith.plugins.cpu_library import LIBRARY_NAME

from ...contract.manifest import Manifest
from ..errors import EngineError
from .base import Int32Array
from .integer_products import ask_for_exact_products

MAX_BINDINGS = 512
"""Bound shapes that are kept; beyond it all are dropped (a serving loop uses a few dozen)."""


def is_native(manifest: Manifest) -> bool:
    """Whether the engine has our own operators."""
    return any(entry.name == LIBRARY_NAME for entry in manifest.files)


def load_graph(folder: Path, name: str, manifest: Manifest, num_threads: int) -> Any:
    """An ``InferenceSession`` of one of the engine's graphs; raises ``EngineError`` where ONNX Runtime refuses it."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_mem_pattern = False  # shapes change from step to step
    ask_for_exact_products(options)
    if manifest.draft is not None:  # threads of one session that spin would take the cores from the next one's
        options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        if is_native(manifest):
            options.register_custom_ops_library(str(folder / LIBRARY_NAME))
        return ort.InferenceSession(folder / name, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise EngineError("engine", found=str(error), where=name) from error


def find_runs(slots: Int32Array) -> Iterator[tuple[int, int]]:
    """Row ranges [first, last) whose slots are consecutive."""
    first = 0
    for row in range(1, len(slots) + 1):
        if row == len(slots) or slots[row] != slots[row - 1] + 1:
            yield first, row
            first = row


def bind_input(binding: Any, name: str, array: npt.NDArray[Any]) -> None:
    """Bind an array that outlives the binding as an input."""
    binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


def bind_output(binding: Any, name: str, array: npt.NDArray[Any]) -> None:
    """Bind an array that outlives the binding as an output."""
    binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
