"""Builds the raw kernels for one GPU, or for the emulator, for tests alone: packages come from ``build-engine plugins
build``."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "plugins" / "csrc" / "kernels"
EMULATOR = Path(__file__).parent / "emulator"
TSAN = ("-fsanitize=thread",)
_NO_SUFFIX_BELOW = 90
_EMULATED = ("accept_*.cu", "lossy_accept.cu", "status.cc")


def find_nvcc() -> Path | None:
    """nvcc on the path, or where CUDA is usually installed."""
    found = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    return Path(found) if found else None


def build_kernels(folder: Path, nvcc: Path, capability: str) -> Path:
    """Compile every source side by side for GPUs of ``capability`` ("90") into one library in ``folder``."""
    suffix = "a" if int(capability) >= _NO_SUFFIX_BELOW else ""
    architecture = f"arch=compute_{capability}{suffix},code=sm_{capability}{suffix}"
    flags = ["-std=c++17", "-O3", "-lineinfo", "-gencode", architecture, "-Xcompiler", "-fPIC"]
    objects = _compile(folder, [str(nvcc), *flags], sorted([*SOURCES.glob("*.cu"), *SOURCES.glob("*.cc")]))
    return _link(folder, [str(nvcc), "-gencode", architecture], objects)


def build_emulated(folder: Path, compiler: str, sanitizer: Sequence[str] = ()) -> Path:
    """Compile LossyAccept for the host with ``compiler``, a g++ of 12 or later; ``sanitizer``: () or ``TSAN``."""
    kernels = sorted(source for pattern in _EMULATED for source in SOURCES.glob(pattern))
    return _link(folder, [compiler, *sanitizer], _compile_emulated(folder, compiler, kernels, sanitizer))


def build_emulated_program(folder: Path, compiler: str, source: Path, sanitizer: Sequence[str] = ()) -> Path:
    """The same of one source with a ``main``."""
    program = folder / source.stem
    objects = _compile_emulated(folder, compiler, [source], sanitizer)
    _run([compiler, *sanitizer, "-o", str(program), *map(str, objects)])
    return program


def _compile_emulated(folder: Path, compiler: str, sources: list[Path], sanitizer: Sequence[str]) -> list[Path]:
    flags = ["-std=c++17", "-O2", "-g", "-fno-strict-aliasing", "-fno-extern-tls-init", "-fPIC", "-Wno-unknown-pragmas"]
    command = [compiler, *flags, "-I", str(EMULATOR), "-I", str(SOURCES), "-x", "c++"]
    # ThreadSanitizer is told what the emulator does; seeing it itself, it would find races in the exchange of words.
    told = ["-DDRAFTSMITH_EMULATOR_TSAN"] if sanitizer else []
    emulator = _compile(folder, [*command, *told], [EMULATOR / "emulator.cc"])
    return [*_compile(folder, [*command, *sanitizer], sources), *emulator]


def _compile(folder: Path, command: list[str], sources: list[Path]) -> list[Path]:
    objects = [folder / f"{source.name}.o" for source in sources]
    jobs = [[*command, "-c", str(source), "-o", str(target)] for source, target in zip(sources, objects, strict=True)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_run, jobs))
    return objects


def _link(folder: Path, command: list[str], objects: list[Path]) -> Path:
    library = folder / "libdraftsmith_kernels.so"
    _run([*command, "-shared", "-o", str(library), *map(str, objects)])
    return library


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` failed ({done.returncode}): {done.stderr[-3000:]}")


if __name__ == "__main__":
    compiler = find_nvcc()
    if compiler is None:
        sys.exit("nvcc: not found")
    print(build_kernels(Path(sys.argv[1]), compiler, sys.argv[2]))
