"""What building plugins needs: nvcc (a toolkit, or NVIDIA's wheels), CMake, and TensorRT's headers."""

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import BackendError, UsageError

TENSORRT_VERSIONS = ("8.6", "10", "11")
KERNELS_ONLY = "none"
"""In place of a TensorRT version: the kernels alone."""
NVCC_WHEELS = "nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime nvidia-cuda-cccl"
_CUDA_MAJORS = (12, 13)
_SYSTEM_HEADERS = ("/usr/include/x86_64-linux-gnu", "/usr/include/aarch64-linux-gnu", "/usr/include")
_MAJOR = re.compile(r"^#define (?:NV_TENSORRT_MAJOR|TRT_MAJOR_ENTERPRISE)\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Programs and where CUDA's own libraries are. ``cuda``: "13.0". ``ninja``: None where make is used."""

    nvcc: Path
    cuda: str
    libraries: Path
    cmake: Path
    ninja: Path | None

    @property
    def cuda_major(self) -> int:
        """12 or 13."""
        return int(self.cuda.split(".")[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """A folder with NvInfer.h, and the TensorRT it is of ("8.6", "10", "11")."""

    folder: Path
    version: str

    @property
    def major(self) -> int:
        """8, 10 or 11."""
        return int(self.version.split(".")[0])


def find_toolchain(cuda: Path | None) -> Toolchain:
    """nvcc of the folder ``cuda`` (None: the first that is found) and CMake.

    Raises ``BackendError`` where one is missing or too old.
    """
    nvcc = _find_nvcc(cuda)
    version = _version_of([str(nvcc), "--version"], r"release (\d+\.\d+)", "nvcc", nvcc)
    if int(version.split(".")[0]) not in _CUDA_MAJORS:
        raise BackendError("nvcc", expected="CUDA 12 or 13", found=f"CUDA {version}", where=str(nvcc))
    cmake = _find_program("cmake")
    if cmake is None:
        raise BackendError(
            "cmake", expected="CMake 3.24 or later", found="none on PATH", action="Run `pip install cmake ninja`"
        )
    found = _version_of([str(cmake), "--version"], r"version (\d+\.\d+)", "cmake", cmake)
    if tuple(map(int, found.split("."))) < (3, 24):
        raise BackendError(
            "cmake", expected="3.24 or later", found=found, where=str(cmake), action="Run `pip install cmake`"
        )
    return Toolchain(nvcc=nvcc, cuda=version, libraries=_find_runtime(nvcc), cmake=cmake, ninja=_find_program("ninja"))


def find_headers(versions: Sequence[str], folder: Path | None) -> tuple[Headers, ...]:
    """Headers of every version asked for; () asks for all that are found, at least one.

    ``folder``: a folder with NvInfer.h, or one of such folders; None: where packages put them. Raises ``UsageError``
    for an unknown version or a folder without headers, and ``BackendError`` for what is not found.
    """
    unknown = [v for v in versions if v not in (*TENSORRT_VERSIONS, KERNELS_ONLY)]
    if unknown:
        known = ", ".join((*TENSORRT_VERSIONS, KERNELS_ONLY))
        raise UsageError("--tensorrt", expected=f"some of {known}", found=", ".join(unknown))
    if KERNELS_ONLY in versions:
        if len(versions) > 1:
            raise UsageError("--tensorrt", expected=f"{KERNELS_ONLY} alone", found=", ".join(versions))
        return ()
    places = [Path(text) for text in _SYSTEM_HEADERS] if folder is None else [folder, *_folders_in(folder)]
    found: dict[str, Headers] = {}
    for headers in map(_read_headers, places):
        if headers is not None:
            found.setdefault(headers.version, headers)
    wanted = tuple(versions) or tuple(v for v in TENSORRT_VERSIONS if v in found)
    missing = [v for v in wanted if v not in found]
    if missing or not wanted:
        raise BackendError(
            "TensorRT headers",
            expected=f"NvInfer.h of TensorRT {', '.join(missing or TENSORRT_VERSIONS)}",
            found=", ".join(sorted(found)) or "none",
            where=str(folder) if folder is not None else ", ".join(_SYSTEM_HEADERS),
            action="Name their folder with --headers, or build the kernels alone with --tensorrt none",
        )
    return tuple(found[v] for v in wanted)


def _folders_in(folder: Path) -> Iterable[Path]:
    if not folder.is_dir():
        raise UsageError("--headers", expected="a folder", found="none", where=str(folder))
    # Within a major, the oldest headers: what is built with them runs with every later minor version.
    return sorted(path for path in folder.iterdir() if path.is_dir())


def _read_headers(folder: Path) -> Headers | None:
    file = folder / "NvInferVersion.h"
    if not file.is_file() or not (folder / "NvInfer.h").is_file():
        return None
    match = _MAJOR.search(file.read_text(encoding="utf-8", errors="replace"))
    by_major = {int(v.split(".")[0]): v for v in TENSORRT_VERSIONS}
    version = by_major.get(int(match.group(1))) if match else None
    return None if version is None else Headers(folder=folder, version=version)


def _find_nvcc(cuda: Path | None) -> Path:
    roots = [cuda] if cuda is not None else _toolkit_roots()
    for root in roots:
        nvcc = root / "bin" / "nvcc"
        if nvcc.is_file():
            return nvcc
    on_path = shutil.which("nvcc") if cuda is None else None
    if on_path is not None:
        return Path(on_path).resolve()
    raise BackendError(
        "nvcc",
        expected="CUDA 12 or 13",
        found="none",
        where="PATH, /usr/local/cuda, Python's nvidia packages" if cuda is None else str(cuda),
        action=f"Name a toolkit with --cuda, or run `pip install {NVCC_WHEELS}`",
    )


def _toolkit_roots() -> list[Path]:
    """A toolkit on PATH wins over the usual place, and both over wheels."""
    on_path = shutil.which("nvcc")
    roots = [Path(on_path).resolve().parent.parent] if on_path else []
    roots.append(Path("/usr/local/cuda"))
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        roots += [Path(folder) / f"cu{major}" for major in reversed(_CUDA_MAJORS)]
    return roots


def _find_runtime(nvcc: Path) -> Path:
    """The folder of libcudart_static.a; wheels keep it where nvcc does not look."""
    root = nvcc.parent.parent
    for folder in (root / "lib64", root / "lib", *sorted((root / "targets").glob("*/lib"))):
        if (folder / "libcudart_static.a").is_file():
            return folder
    raise BackendError(
        "CUDA runtime",
        expected="libcudart_static.a",
        found="none",
        where=str(root),
        action="Run `pip install nvidia-cuda-runtime`, or name a whole toolkit with --cuda",
    )


def _find_program(name: str) -> Path | None:
    """On PATH, or beside this Python (a virtual environment that is not activated)."""
    beside = Path(sys.executable).parent / name
    found = shutil.which(name) or (str(beside) if beside.is_file() else None)
    return None if found is None else Path(found)


def _version_of(command: list[str], pattern: str, name: str, path: Path) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise BackendError(name, expected="a program that runs", found=str(error), where=str(path)) from error
    match = re.search(pattern, done.stdout)
    if match is None:
        said = " ".join((done.stdout + done.stderr).split())[:200]
        raise BackendError(name, expected="a version", found=said or "no output", where=str(path))
    return match.group(1)
