"""INT8 engines with our own CPU operators: near FP32, row-independent, and what happens without a compiler."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from draftsmith.builder.checkpoint.hf_folder import FolderWeights
from draftsmith.builder.engines import native_kernels
from draftsmith.builder.errors import BackendError, BuildError, UsageError
from draftsmith.builder.quantize import native
from draftsmith.plugins import cpu_library
from draftsmith.plugins.cpu_library import LIBRARY_NAME, Compiler, CompilerError, find_compiler
from draftsmith.plugins.packing import pack_linear, unpack_panels

from tests.engine_cases import FloatArray, build_engine, check_row_independence, fill_slot, open_engine

Write = Callable[..., Path]
NATIVE = {"extras": {"kernels": "native"}}
FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "gemma3"]


def rounded(weight: FloatArray) -> FloatArray:
    """A matrix as its 8 bits stand for it; what is no matrix stays."""
    if weight.ndim != 2:
        return weight
    packed = pack_linear(weight)
    integers = unpack_panels(packed.weights)[: weight.shape[0], : weight.shape[1]].astype(np.float32)
    return np.asarray(integers * packed.scales[: weight.shape[0], None])


needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="needs x86-64 Linux and a C compiler")


@needs_compiler
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_float_operators_with_the_rounded_weights(
    family: str, tiny_checkpoint: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tiny_checkpoint(family)
    tokens = np.random.default_rng(0).integers(3, 200, 60).tolist()
    monkeypatch.setattr(native, "_round", lambda weight, inputs: None)  # to the nearest
    ours = fill_slot(open_engine(checkpoint, tmp_path / "int8", "int8", **NATIVE), 0, tokens, chunk=32)

    read = FolderWeights.read
    monkeypatch.setattr(FolderWeights, "read", lambda self, name: rounded(read(self, name)))
    floats = fill_slot(open_engine(checkpoint, tmp_path / "fp32"), 0, tokens, chunk=32)

    error = np.sqrt(np.square(ours - floats).mean() / np.square(floats).mean())
    assert error < 1e-3


@needs_compiler
@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_has_the_same_bits_alone_and_in_any_batch(family: str, tiny_checkpoint: Write, tmp_path: Path) -> None:
    session = open_engine(tiny_checkpoint(family), tmp_path / "engine", "int8", **NATIVE)

    assert session.min_query_len == 1
    check_row_independence(session, np.random.default_rng(0), session.copy_slot)


@needs_compiler
def test_chunks_of_a_prompt_give_the_same_bits_single_tokens_included(tiny_checkpoint: Write, tmp_path: Path) -> None:
    session = open_engine(tiny_checkpoint("llama"), tmp_path / "engine", "int8", **NATIVE)
    tokens = np.random.default_rng(1).integers(3, 200, 60).tolist()
    whole = fill_slot(session, 0, tokens, chunk=32)

    for chunk in (1, 2, 7, 17, 31):
        np.testing.assert_array_equal(fill_slot(session, 1, tokens, chunk), whole, err_msg=f"chunk {chunk}")


@needs_compiler
def test_the_library_is_one_of_the_engines_files(tiny_checkpoint: Write, tmp_path: Path) -> None:
    built = build_engine(tiny_checkpoint("llama"), tmp_path / "engine", "int8")

    assert LIBRARY_NAME in built.files
    assert (tmp_path / "engine" / LIBRARY_NAME).stat().st_size > 10_000
    assert built.requires["machine"] == "x86_64"
    assert built.build["dialect"] == "native"


def test_without_a_compiler_onnx_runtimes_operators_are_used(
    tiny_checkpoint: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_kernels, "find_compiler", lambda: None)

    built = build_engine(tiny_checkpoint("llama"), tmp_path / "engine", "int8")

    assert LIBRARY_NAME not in built.files
    assert built.build["kernels"] == "onnxruntime"
    assert built.min_query_len == 2


def test_our_operators_without_a_compiler_are_refused(
    tiny_checkpoint: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_kernels, "find_compiler", lambda: None)

    with pytest.raises(BackendError, match=r"native kernels: expected Linux on x86_64 with a C compiler.*pip install"):
        build_engine(tiny_checkpoint("llama"), tmp_path / "engine", "int8", **NATIVE)


def test_unknown_kernels_are_refused(tiny_checkpoint: Write, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="kernels: expected auto or native or onnxruntime, found 'fast'"):
        build_engine(tiny_checkpoint("llama"), tmp_path / "engine", "int8", extras={"kernels": "fast"})


def test_a_failing_compiler_is_quoted(tiny_checkpoint: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_kernels, "find_compiler", lambda: Compiler(("false",), "false 1.0"))

    with pytest.raises(BuildError, match=r"native kernels: .*`false .*kernels=onnxruntime"):
        build_engine(tiny_checkpoint("llama"), tmp_path / "engine", "int8")


def test_other_machines_have_no_compiler_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")

    assert cpu_library.find_compiler.__wrapped__() is None


def test_a_compiler_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CompilerError, match="no-such-compiler"):
        cpu_library.build_library(tmp_path, Compiler(("no-such-compiler",), ""))
