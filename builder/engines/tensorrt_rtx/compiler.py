"""Compiles an ONNX graph into a TensorRT-RTX engine file; knows shapes by their names, nothing about models."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import BuildError
from .library import load_library, make_log

HEADER_BYTES = 64
_MALFORMED_BIT = 5  # bit of EngineInvalidityDiagnostics.MALFORMED_ENGINE in what get_engine_validity returns


@dataclass(frozen=True, slots=True, kw_only=True)
class DimRange:
    """The values that a named dimension takes; kernels are chosen for ``usual``."""

    least: int
    usual: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledEngine:
    """An engine file and what building it took."""

    path: Path
    num_bytes: int
    num_layers: int
    seconds: float
    library_version: str


def compile_engine(graph: Path, target: Path, *, gpus: Sequence[str], dims: Mapping[str, DimRange]) -> CompiledEngine:
    """Build ``graph`` for ``gpus`` ("sm86") into the file ``target``, written beside and renamed. Needs no GPU.

    ``dims``: a range for every named dimension of the graph's inputs; the graph must be strongly typed (every type is
    what the graph says).

    Raises:
        BackendError: TensorRT-RTX is not installed.
        BuildError: it refuses the graph; ``found`` is its own first message.
    """
    start = time.monotonic()
    library = load_library()
    log = make_log(library)
    builder = library.Builder(log)
    network = builder.create_network(1 << int(library.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    _parse(library, network, graph, log)
    config = builder.create_builder_config()
    config.add_optimization_profile(_profile(builder, network, dims, graph))
    config.num_compute_capabilities = len(gpus)
    for index, gpu in enumerate(gpus):
        config.set_compute_capability(getattr(library.ComputeCapability, gpu.upper()), index)

    def build(file: BinaryIO) -> None:
        writer = _make_writer(library, file)
        done = builder.build_serialized_network_to_stream(network, config, writer)
        if writer.error is not None:
            raise writer.error
        if not done:
            raise _build_error(graph, "a network that TensorRT-RTX can build", log.errors)

    _write_atomically(target, build)
    check_header(target)
    return CompiledEngine(
        path=target,
        num_bytes=target.stat().st_size,
        num_layers=network.num_layers,
        seconds=time.monotonic() - start,
        library_version=str(library.__version__),
    )


def check_header(engine: Path) -> None:
    """Raise ``BuildError`` unless the file starts like an engine of the installed TensorRT-RTX. Needs no GPU."""
    library = load_library()
    log = make_log(library)
    with engine.open("rb") as file:
        header = file.read(HEADER_BYTES)
    _, diagnostics = library.Runtime(log).get_engine_validity(header)
    if int(diagnostics) >> _MALFORMED_BIT & 1:
        raise BuildError(
            engine.name,
            expected=f"an engine of TensorRT-RTX {library.__version__}",
            found=f"{header[:8]!r}...",
            where=str(engine.parent),
            action="Build it again",
        )


def _parse(library: Any, network: Any, graph: Path, log: Any) -> None:
    parser = library.OnnxParser(network, log)
    if not parser.parse_from_file(str(graph)):
        first = parser.get_error(0)
        raise _build_error(graph, "operators that TensorRT-RTX takes", [f"{first.node_name()}: {first.desc()}"])


def _profile(builder: Any, network: Any, dims: Mapping[str, DimRange], graph: Path) -> Any:
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        ranges = []
        for axis, size in enumerate(tensor.shape):
            name = tensor.get_dimension_name(axis)
            if size < 0 and name not in dims:
                raise BuildError(
                    f"{tensor.name} dimension {axis}", expected=", ".join(dims), found=repr(name), where=graph.name
                )
            ranges.append(dims[name] if size < 0 else DimRange(least=size, usual=size, most=size))
        profile.set_shape(tensor.name, [r.least for r in ranges], [r.usual for r in ranges], [r.most for r in ranges])
    return profile


def _make_writer(library: Any, file: BinaryIO) -> Any:
    class Writer(library.IStreamWriter):  # type: ignore[misc]  # the base is known when the wheel is loaded
        """Hands the engine to the file piece by piece; an exception must not cross the C++ caller, so it is kept."""

        def __init__(self) -> None:
            library.IStreamWriter.__init__(self)
            self.error: OSError | None = None

        def write(self, data: bytes) -> int:
            try:
                return file.write(data)
            except OSError as error:
                self.error = error
                return 0

    return Writer()


def _write_atomically(target: Path, write: Callable[[BinaryIO], None]) -> None:
    partial = target.with_name(target.name + ".partial")
    try:
        with partial.open("wb") as file:
            write(file)
        partial.replace(target)
    except OSError as error:
        raise BuildError(target.name, expected="to be written", found=str(error), where=str(target.parent)) from error
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()


def _build_error(graph: Path, expected: str, messages: Sequence[str]) -> BuildError:
    found = messages[0].splitlines()[0] if messages else "no message"
    return BuildError(
        graph.name,
        expected=expected,
        found=found,
        where="backend tensorrt-rtx",
        action="Run with --verbose for its log",
    )
