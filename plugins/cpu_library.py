"""Compiles the CPU operators (``csrc/cpu``) into one library that runs on every x86-64 Linux machine.

The instruction sets are compiled side by side and chosen when the library is loaded, so an engine may move between
machines. Needs a C compiler: the ``ziglang`` package (its library runs on older systems too), or ``cc``.
"""

import functools
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

LIBRARY_NAME = "libdraftsmith_cpu.so"
SOURCES = Path(__file__).parent / "csrc" / "cpu"
MACHINE = "x86_64"
SYSTEM = "Linux"

_COMMON = ("-std=gnu11", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno")
_AVX2 = ("-mavx2", "-mfma")
_AVX512 = (*_AVX2, *(f"-mavx512{part}" for part in ("f", "bw", "vl", "dq", "vnni")))
_INSTRUCTION_SETS: dict[str, tuple[str, ...]] = {
    "generic": (),
    "avx2": _AVX2,
    "avxvnni": (*_AVX2, "-mavxvnni"),
    "avx512vnni": _AVX512,
}
_TILES = (*_AVX512, "-mamx-tile", "-mamx-int8")
_OTHER_FLAGS = {"linear_tiles": _TILES, "vocabulary_tiles": _TILES}


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler: the words that call it, what it says it is, and options that win over ours (tests)."""

    command: tuple[str, ...]
    version: str
    options: tuple[str, ...] = ()


class CompilerError(Exception):
    """The compiler failed; the message holds what it said."""


@functools.cache
def find_compiler() -> Compiler | None:
    """A compiler for this machine's operators, or None: no x86-64 Linux, or no C compiler that is new enough."""
    if platform.system() != SYSTEM or platform.machine() != MACHINE:
        return None
    candidates: list[tuple[str, ...]] = []
    if importlib.util.find_spec("ziglang") is not None:
        candidates.append((sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.17"))
    candidates += [(path,) for path in map(shutil.which, ("cc", "gcc", "clang")) if path]
    for command in candidates:
        if _compiles_tiles(command):
            return Compiler(command, _first_line([*command, "--version"]))
    return None


def build_library(folder: Path, compiler: Compiler) -> Path:
    """Compile (once a process) and write ``LIBRARY_NAME`` into ``folder``; raises ``CompilerError``."""
    path = folder / LIBRARY_NAME
    path.write_bytes(_compile(compiler))
    return path


@functools.cache
def _compile(compiler: Compiler) -> bytes:
    with tempfile.TemporaryDirectory(prefix="draftsmith-cpu-") as folder:
        jobs = list(_jobs(Path(folder)))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda job: _run([*compiler.command, *job, *compiler.options]), jobs))
        library = Path(folder) / LIBRARY_NAME
        objects = [job[-1] for job in jobs]
        # A thread's scratch is freed when it ends, perhaps after the last session: the code must still be there.
        link = ("-shared", "-s", "-Wl,-z,nodelete", "-o", str(library), *objects, "-lm", "-lpthread")
        _run([*compiler.command, *link, *compiler.options])
        return library.read_bytes()


def _jobs(folder: Path) -> list[tuple[str, ...]]:
    """Arguments that compile each object; the last is the object."""
    jobs = []
    for source in sorted(SOURCES.glob("*.c")):
        sets = _INSTRUCTION_SETS if source.stem == "instruction_set" else {"": _OTHER_FLAGS.get(source.stem, ())}
        for name, flags in sets.items():
            define = [f"-DISA={name}"] if name else []
            target = folder / f"{source.stem}{name}.o"
            jobs.append((*_COMMON, *flags, *define, "-c", str(source), "-o", str(target)))
    return jobs


def _compiles_tiles(command: tuple[str, ...]) -> bool:
    """Whether a compiler knows the newest instructions that we use."""
    with tempfile.TemporaryDirectory(prefix="draftsmith-cpu-") as folder:
        source = Path(folder) / "probe.c"
        source.write_text("#include <immintrin.h>\nvoid f(void) { _tile_release(); }\n", encoding="ascii")
        flags = (*_TILES, "-mavxvnni")
        try:
            _run([*command, *flags, "-c", str(source), "-o", str(Path(folder) / "probe.o")])
        except CompilerError:
            return False
    return True


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise CompilerError(str(error)) from error
    if done.returncode:
        raise CompilerError(f"`{' '.join(command)}` failed ({done.returncode}): {done.stderr.strip()[-2000:]}")


def _first_line(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return (done.stdout.splitlines() or ["unknown"])[0]
