"""TensorRT-RTX engines: what this machine has for them.

Running them is not written yet: it needs an RTX GPU, and none was at hand to test it on. Until then a package of this
backend is refused: by ``requirements`` for what the machine lacks, else here.
"""

import ctypes
import shutil
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from ...contract.manifest import Manifest
from ..errors import EngineError

BINDINGS = "tensorrt-rtx-cu13-bindings"
_QUERY_SECONDS = 20


def open_session(folder: Path, manifest: Manifest, *, num_threads: int, num_slots: int) -> NoReturn:  # noqa: ARG001
    """Raise ``EngineError``: draftsmith builds such engines and cannot run them yet."""
    raise EngineError(
        f"{manifest.model_name} ({manifest.backend}, {manifest.precision})",
        expected="a backend that this version of draftsmith runs (onnxruntime)",
        found=manifest.backend,
        where=str(folder),
        action="Serve it with TensorRT-RTX's own runtime, or rebuild with `--backend onnxruntime`",
    )


def find_machine_facts() -> dict[str, str]:
    """Versions of TensorRT-RTX, CUDA and driver, the first GPU's compute capability; what is missing is left out."""
    facts = _query_gpu() | _query_cuda()
    with suppress(metadata.PackageNotFoundError):
        facts["tensorrt_rtx"] = metadata.version(BINDINGS)
    return facts


def _query_gpu() -> dict[str, str]:
    command = shutil.which("nvidia-smi")
    if command is None:
        return {}
    query = [command, "--query-gpu=compute_cap,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=_QUERY_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return parse_gpu_query(answer.stdout)


def _query_cuda() -> dict[str, str]:
    """The newest CUDA that the driver runs, {} without a driver."""
    version = ctypes.c_int(0)
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except OSError:
        return {}
    return {} if failed else {"cuda": f"{version.value // 1000}.{version.value % 1000 // 10}"}


def parse_gpu_query(text: str) -> dict[str, str]:
    """``8.9, 580.65.06`` (nvidia-smi's first line) as named facts; {} for anything else."""
    fields = [part.strip() for part in text.strip().partition("\n")[0].split(",")]
    if len(fields) != 2 or not all(fields):
        return {}
    return {"compute_capability": fields[0], "driver": fields[1]}
