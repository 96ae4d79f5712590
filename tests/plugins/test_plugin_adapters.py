"""The TensorRT adapters of each version, compiled against its headers and run on the CPU alone."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from draftsmith.builder.errors import BackendError
from draftsmith.builder.plugin_build import find_headers, find_toolchain

from tests.plugins.test_plugin_build import CUDA_VARIABLE, HEADERS, HEADERS_VARIABLE

ADAPTERS = Path(__file__).parents[2] / "plugins" / "csrc" / "tensorrt"
SOURCES = ("layout.cc", "operator.cc", "lossy_accept_operator.cc", "spec_vocab_head_operator.cc")
DRIVER = Path(__file__).parent / "drivers" / "adapters.cc"
FLAGS = ("-std=c++17", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover")


@pytest.fixture(scope="module")
def cuda_headers() -> Path:
    given = os.environ.get(CUDA_VARIABLE)
    try:
        folder = find_toolchain(Path(given) if given else None).nvcc.parent.parent / "include"
    except BackendError as error:
        pytest.skip(f"needs CUDA's headers: {error}")
    return folder


@pytest.mark.parametrize("version", ["8.6", "10", "11"])
def test_adapters_check_store_and_pass_on_what_they_are_given(version: str, cuda_headers: Path, tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    if not HEADERS.is_dir():
        pytest.skip(f"needs TensorRT's headers: {HEADERS_VARIABLE}, or {HEADERS}")
    try:
        (headers,) = find_headers((version,), HEADERS)
    except BackendError as error:
        pytest.skip(str(error))
    includes = ["-isystem", str(headers.folder), "-isystem", str(cuda_headers), "-I", str(ADAPTERS)]
    program = tmp_path / "adapters"
    sources = [str(DRIVER), *(str(ADAPTERS / name) for name in SOURCES)]

    built = subprocess.run(
        [compiler, *FLAGS, *includes, *sources, "-o", str(program)], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr[-4000:]
    ran = subprocess.run([str(program)], capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stdout) == (0, "as expected\n"), ran.stdout + ran.stderr[-4000:]
