"""Finds a Triton server: the one on the PATH, else nvidia-pytriton's, and completes the latter's backend folder."""

import importlib.util
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import BackendError

INSTALL_HINT = "Install it with: pip install --no-deps nvidia-pytriton==0.7.0 (or run inside NVIDIA's Triton container)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonInstallation:
    """``bundled_root``: nvidia-pytriton's ``tritonserver`` folder, None for a server that knows its own folders."""

    program: Path
    bundled_root: Path | None


def find_triton(program: Path | None = None) -> TritonInstallation:
    """The server to start; raises ``BackendError`` where there is none, or none for this Python."""
    if program is not None:
        if not program.is_file():
            raise BackendError(
                "--triton", expected="the tritonserver program", found="no such file", where=str(program)
            )
        return TritonInstallation(program=program.resolve(), bundled_root=None)
    on_path = shutil.which("tritonserver")
    if on_path:
        return TritonInstallation(program=Path(on_path), bundled_root=None)
    root = bundled_root()
    if root is None:
        raise BackendError(
            "tritonserver", expected="on the PATH, or the package nvidia-pytriton", found="neither", action=INSTALL_HINT
        )
    if not _stub(root).is_file():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        have = ", ".join(sorted(p.name for p in (root / "python_backend_stubs").glob("*")))
        raise BackendError(
            "nvidia-pytriton",
            expected=f"a Python backend stub for Python {version}",
            found=have or "none",
            where=str(root),
            action="Use a Python version that has one",
        )
    return TritonInstallation(program=root / "bin" / "tritonserver", bundled_root=root)


def bundled_root() -> Path | None:
    """nvidia-pytriton's server folder, found without importing the package; None where it is not installed."""
    spec = importlib.util.find_spec("pytriton")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent / "tritonserver"
    return root if (root / "bin" / "tritonserver").is_file() else None


def link_backend(root: Path, folder: Path) -> Path:
    """Make a backend folder in ``folder``: links to the Python backend and to the stub of this Python version.

    nvidia-pytriton keeps the stub elsewhere; without it every Python model fails ("stub is not found"). Returns the
    value for ``--backend-directory``.
    """
    backend = folder / "backends" / "python"
    backend.mkdir(parents=True)
    shipped = root / "backends" / "python"
    for source in (
        shipped / "libtriton_python.so",
        shipped / "triton_python_backend_utils.py",
        _stub(root),
    ):
        (backend / source.name).symlink_to(source)
    return backend.parent


def _stub(root: Path) -> Path:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return root / "python_backend_stubs" / version / "triton_python_backend_stub"
