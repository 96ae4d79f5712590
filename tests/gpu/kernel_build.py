"""Builds the raw kernels for one GPU, for tests alone: packages come from ``build-engine plugins build``."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "plugins" / "csrc" / "kernels"
_NO_SUFFIX_BELOW = 90


def find_nvcc() -> Path | None:
    """nvcc on the path, or where CUDA is usually installed."""
    found = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    return Path(found) if found else None


def build_kernels(folder: Path, nvcc: Path, capability: str) -> Path:
    """Compile every source side by side for GPUs of ``capability`` ("90") into one library in ``folder``."""
    suffix = "a" if int(capability) >= _NO_SUFFIX_BELOW else ""
    architecture = f"arch=compute_{capability}{suffix},code=sm_{capability}{suffix}"
    flags = ["-std=c++17", "-O3", "-lineinfo", "-gencode", architecture, "-Xcompiler", "-fPIC"]
    sources = sorted([*SOURCES.glob("*.cu"), *SOURCES.glob("*.cc")])
    objects = [folder / f"{source.name}.o" for source in sources]
    jobs = [
        [str(nvcc), *flags, "-c", str(source), "-o", str(target)]
        for source, target in zip(sources, objects, strict=True)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_run, jobs))
    library = folder / "libdraftsmith_kernels.so"
    _run([str(nvcc), "-shared", "-gencode", architecture, "-o", str(library), *map(str, objects)])
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
