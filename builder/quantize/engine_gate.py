"""Opens a finished engine as it will be served and puts it through the quality gate."""

import ctypes
import gc
import importlib
from pathlib import Path
from typing import Any

from draftsmith.model_repo.contract.manifest import Manifest
from draftsmith.model_repo.runtime.errors import EngineError
from draftsmith.model_repo.runtime.sessions.base import TargetSession

from ..checkpoint.source import Checkpoint
from ..errors import BuildError
from ..progress import Progress
from .float_states import FloatStates
from .quality_gate import QualityLimits, quality_gate
from .ranking import rank_linears
from .speed import estimate_float_ms, measure_step_ms

SESSIONS = "draftsmith.model_repo.runtime.sessions"
MEASURED_BACKENDS = {"onnxruntime": "onnxruntime"}
"""Backends whose engines run on the machine that builds them, and the module of ``sessions`` that does it."""


def measure_engine(
    checkpoint: Checkpoint,
    folder: Path,
    manifest: Manifest,
    limits: QualityLimits,
    *,
    num_threads: int,
    progress: Progress,
    states: FloatStates | None = None,
) -> dict[str, Any]:
    """The figures for the manifest's ``quality`` of the INT8 engine in ``folder``; ``states``: see ``quality_gate``.

    Raises ``BuildError`` where the engine does not run or passes a limit.
    """
    return_free_memory()
    module = importlib.import_module(f"{SESSIONS}.{MEASURED_BACKENDS[manifest.backend]}")

    def open_session(place: Path, described: Manifest) -> TargetSession:
        session: TargetSession = module.open_session(place, described, num_threads=num_threads, num_slots=1)
        return session

    try:
        session = open_session(folder, manifest)
        try:
            report = quality_gate(checkpoint, session, limits, progress=progress, states=states)
            step_ms = measure_step_ms(session)
        finally:
            session.close()
    except EngineError as error:
        raise BuildError("quality gate", found=str(error), where=manifest.model_name) from error
    linears = manifest.build.get("engine", {}).get("int8", {}).get("linears", {})
    if not linears and not report.passes:
        linears = rank_linears(checkpoint, progress)
    report = report.with_worst(linears)
    report.check()
    with progress.stage("compare speed") as stage:
        float_ms = estimate_float_ms(checkpoint, manifest, folder, open_session)
        stage.note(describe_speed(step_ms, float_ms))
    return report.to_dict() | {"step_ms": round(step_ms, 2), "fp16_step_ms": round(float_ms, 2)}


def return_free_memory() -> None:
    """Give back what calibration has freed: glibc keeps it for later, and an engine is about to be loaded beside it."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def describe_speed(step_ms: float, float_ms: float) -> str:
    """One line; says so where INT8 is the slower."""
    line = f"a step takes {step_ms:.1f} ms, in FP16 about {float_ms:.1f} ms"
    if step_ms <= float_ms:
        return line
    return f"{line}: INT8 is slower on this machine (the bits of each linear are in engine.json)"
