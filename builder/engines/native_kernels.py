"""INT8 engines with our own CPU operators: which plans the graph gets, and the library beside it."""

import platform
from dataclasses import replace
from pathlib import Path

from draftsmith.plugins.cpu_library import MACHINE, Compiler, CompilerError, build_library, find_compiler

from ..errors import BackendError, BuildError, UsageError
from ..graph.native_linear import NativeEmbedding, NativeLinear
from ..graph.target_graph import GraphOptions
from ..progress import Progress
from ..spec.target import ModelSpec
from .base import BuildOptions

EXTRA = "kernels"
CHOICES = ("auto", "native", "onnxruntime")
MIN_QUERY_LEN = 1
"""The operators give a lone token the same bits as one among others."""
REQUIRES = {"machine": MACHINE}
JOINED_LINEARS = ("qkv", "o", "gate_up", "down")


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


def plan_native(spec: ModelSpec, plain: GraphOptions) -> GraphOptions:
    """``plain`` with our dialect and 8-bit weights in every linear and in the embedding, which a tied head shares."""
    names = [f"layers.{i}.{part}" for i in range(spec.num_layers) for part in JOINED_LINEARS]
    linears = dict.fromkeys(names, NativeLinear())
    linears["head"] = NativeLinear(shared="embedding" if spec.tied_head else None)
    return replace(plain, dialect="native", linears=linears, embedding=NativeEmbedding())


def write_library(folder: Path, compiler: Compiler, progress: Progress) -> Path:
    """Compile the operators into ``folder``; raises ``BuildError``."""
    with progress.stage("compile kernels", total=1, unit="library") as stage:
        try:
            path = build_library(folder, compiler)
        except CompilerError as error:
            raise BuildError("native kernels", found=str(error), action="Build with kernels=onnxruntime") from error
        stage.advance()
    return path
