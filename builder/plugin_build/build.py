"""Configures and builds ``plugins/csrc`` in a temporary folder, and moves what was built to where it was asked for."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftsmith.plugins import cpu_library
from draftsmith.plugins.tensorrt_library import PluginLibraryError, library_name, read_library

from ..errors import BuildError, UsageError
from ..progress import Progress, Stage
from .toolchain import Headers, Toolchain

SOURCES = cpu_library.SOURCES.parent
_ARCHITECTURE = re.compile(r"(\d{2,3})[af]?(-real|-virtual)?")
_LEAST_ARCHITECTURE = 75
_STEP = re.compile(r"\[\s*(\d+)(?:/(\d+)|%)\]")


def check_architectures(names: Sequence[str]) -> None:
    """Raise ``UsageError`` for an architecture that no kernel is for."""
    for name in names:
        match = _ARCHITECTURE.fullmatch(name)
        if match is None or int(match.group(1)) < _LEAST_ARCHITECTURE:
            raise UsageError("--arch", expected="75 or more, such as 90 or 120-real", found=repr(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginBuild:
    """What to build: libraries for ``headers`` (none: the kernels alone), for ``architectures`` ("90", "120-real").

    No architectures: every GPU of SM 7.5 and later, and PTX. Raises ``UsageError`` for one that no kernel is for.
    """

    toolchain: Toolchain
    headers: tuple[Headers, ...]
    architectures: tuple[str, ...]
    output: Path

    def __post_init__(self) -> None:
        check_architectures(self.architectures)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltLibrary:
    """A file that was built. ``tensorrt``: the major it is for, None for the kernels alone."""

    path: Path
    num_bytes: int
    tensorrt: int | None
    cuda: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"path": str(self.path), "num_bytes": self.num_bytes, "tensorrt": self.tensorrt, "cuda": self.cuda}


def build_plugins(plan: PluginBuild, progress: Progress) -> tuple[BuiltLibrary, ...]:
    """Build the kernel library and a plugin library for each of ``plan.headers`` into ``plan.output``.

    Raises ``BuildError`` where CMake or a compiler fails; then nothing is written.
    """
    major = plan.toolchain.cuda_major
    names: dict[str, int | None] = {f"libdraftsmith_kernels_cu{major}.so": None}
    names |= {library_name(h.major, major): h.major for h in plan.headers}
    with tempfile.TemporaryDirectory(prefix="draftsmith-plugins-") as folder:
        start = time.monotonic()
        with progress.stage("configure") as stage:
            _run(_configure(plan, Path(folder)), stage)
        with progress.stage("compile kernels and plugins", total=1.0, unit="build") as stage:
            _run(_compile(plan, Path(folder)), stage)
            stage.note(f"{time.monotonic() - start:.0f} s")
        for name, tensorrt in names.items():
            _check_built(Path(folder) / "lib" / name, tensorrt)
        plan.output.mkdir(parents=True, exist_ok=True)
        paths = [_install(Path(folder) / "lib" / name, plan.output) for name in names]
    return tuple(
        BuiltLibrary(path=path, num_bytes=path.stat().st_size, tensorrt=tensorrt, cuda=major)
        for path, tensorrt in zip(paths, names.values(), strict=True)
    )


def _configure(plan: PluginBuild, folder: Path) -> list[str]:
    tools = plan.toolchain
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools.ninja}"] if tools.ninja else []
    includes = ";".join(str(h.folder.resolve()) for h in plan.headers)
    return [
        *(str(tools.cmake), "-S", str(SOURCES), "-B", str(folder), *generator),
        f"-DCMAKE_CUDA_COMPILER={tools.nvcc}",
        f"-DCMAKE_CUDA_FLAGS=-L{tools.libraries}",
        f"-DDRAFTSMITH_ARCHITECTURES={';'.join(plan.architectures)}",
        f"-DDRAFTSMITH_TENSORRT_INCLUDES={includes}",
    ]


def _compile(plan: PluginBuild, folder: Path) -> list[str]:
    return [str(plan.toolchain.cmake), "--build", str(folder), "--parallel", str(os.cpu_count() or 1)]


def _run(command: list[str], stage: Stage) -> None:
    """Run a program, advancing ``stage`` by its "[3/20]" or "[ 15%]"; raises ``BuildError`` with what it said last."""
    lines: list[str] = []
    done = 0.0
    try:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            for line in process.stdout or ():
                lines.append(line.rstrip())
                share = _share(line)
                if share > done:
                    stage.advance(share - done)
                    done = share
    except OSError as error:
        raise BuildError("plugins", expected="a program that runs", found=str(error), where=command[0]) from error
    if process.returncode:
        raise BuildError(
            "plugins",
            expected=f"`{Path(command[0]).name}` to succeed",
            found=f"exit status {process.returncode}: {_essence(lines)}",
        )


def _share(line: str) -> float:
    match = _STEP.match(line)
    if match is None:
        return 0.0
    return int(match.group(1)) / (int(match.group(2)) if match.group(2) else 100)


def _essence(lines: list[str]) -> str:
    """The first lines that speak of an error, else the last ones."""
    errors = [line for line in lines if re.search(r"\b(error|fatal|undefined reference)\b", line, re.IGNORECASE)]
    return " / ".join(errors[:4] or lines[-4:])[:1500] or "no output"


def _check_built(path: Path, tensorrt: int | None) -> None:
    if not path.is_file():
        raise BuildError("plugins", expected=path.name, found="no such file after the build")
    if tensorrt is None:
        return
    try:
        found = read_library(path).tensorrt
    except PluginLibraryError as error:
        raise BuildError("plugins", expected="a library that says who it is", found=str(error)) from error
    if found != tensorrt:
        raise BuildError("plugins", expected=f"{path.name} for TensorRT {tensorrt}", found=f"TensorRT {found}")


def _install(source: Path, folder: Path) -> Path:
    """Copy beside its place and rename: a process that has the old file loaded keeps it whole."""
    target = folder / source.name
    partial = folder / f".{source.name}.{os.getpid()}.partial"
    try:
        shutil.copyfile(source, partial)
        partial.chmod(0o755)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target
