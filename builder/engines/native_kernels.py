"""INT8 engines with our own CPU operators: whether they are used, and the library beside the graph."""

import platform
from pathlib import Path

from draftsmith.plugins.cpu_library import MACHINE, Compiler, CompilerError, build_library, find_compiler

from ..errors import BackendError, BuildError, UsageError
from ..progress import Progress
from .base import BuildOptions

EXTRA = "kernels"
CHOICES = ("auto", "native", "onnxruntime")
MIN_QUERY_LEN = 1
"""The operators give a lone token the same bits as one among others."""
REQUIRES = {"machine": MACHINE}


def choose_compiler(options: BuildOptions) -> Compiler | None:
    """The compiler for our operators, or None where ONNX Runtime's own are to be used.

    Raises ``UsageError`` for an unknown choice, and ``BackendError`` where our operators were asked for and cannot be
    compiled here.
    """
    choice = options.extras.get(EXTRA, "auto")
    if choice not in CHOICES:
        raise UsageError(EXTRA, expected=" or ".join(CHOICES), found=repr(choice))
    if options.precision != "int8" or choice == "onnxruntime":
        return None
    compiler = find_compiler()
    if compiler is None and choice == "native":
        raise BackendError(
            "native kernels",
            expected=f"Linux on {MACHINE} with a C compiler",
            found=f"{platform.system()} on {platform.machine()} without",
            action="Run `pip install ziglang`, install gcc, or build with kernels=onnxruntime",
        )
    return compiler


def write_library(folder: Path, compiler: Compiler, progress: Progress) -> Path:
    """Compile the operators into ``folder``; raises ``BuildError``."""
    with progress.stage("compile kernels", total=1, unit="library") as stage:
        try:
            path = build_library(folder, compiler)
        except CompilerError as error:
            raise BuildError("native kernels", found=str(error), action="Build with kernels=onnxruntime") from error
        stage.advance()
    return path
