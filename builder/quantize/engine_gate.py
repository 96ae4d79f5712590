"""Opens a finished engine as it will be served and puts it through the quality gate."""

import importlib
from pathlib import Path
from typing import Any

from draftsmith.model_repo.contract.manifest import Manifest
from draftsmith.model_repo.runtime.errors import EngineError
from draftsmith.model_repo.runtime.sessions.base import TargetSession

from ..checkpoint.source import Checkpoint
from ..errors import BuildError
from ..progress import Progress
from .quality_gate import QualityLimits, quality_gate
from .ranking import rank_linears

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
) -> dict[str, Any]:
    """The figures for the manifest's ``quality`` of the INT8 engine in ``folder``.

    Raises ``BuildError`` where the engine does not run or passes a limit.
    """
    module = importlib.import_module(f"{SESSIONS}.{MEASURED_BACKENDS[manifest.backend]}")
    try:
        session: TargetSession = module.open_session(folder, manifest, num_threads=num_threads, num_slots=1)
    except EngineError as error:
        raise BuildError("quality gate", found=str(error), where=manifest.model_name) from error
    try:
        report = quality_gate(checkpoint, session, limits, progress=progress)
    finally:
        session.close()
    linears = manifest.build.get("engine", {}).get("int8", {}).get("linears", {})
    if not linears and not report.passes:
        linears = rank_linears(checkpoint, progress)
    report = report.with_worst(linears)
    report.check()
    return report.to_dict()
