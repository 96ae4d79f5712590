"""Builds the plugin library and the C++ driver for the TensorRT whose headers and libraries the environment names."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from draftsmith.builder.errors import BackendError
from draftsmith.builder.plugin_build import Headers, PluginBuild, Toolchain, build_plugins, find_headers, find_toolchain
from draftsmith.builder.progress import Silent

HEADERS_VARIABLE = "DRAFTSMITH_TENSORRT_HEADERS"
LIBRARIES_VARIABLE = "DRAFTSMITH_TENSORRT_LIBRARIES"
CUDA_VARIABLE = "DRAFTSMITH_CUDA"
DRIVER = Path(__file__).parent / "drivers" / "tensorrt_driver.cu"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """The built library and driver, and TensorRT's own libraries."""

    major: int
    library: Path
    driver: Path
    tensorrt: Path

    def call(self, command: str, *words: object, library: bool = True) -> subprocess.CompletedProcess[str]:
        """The driver as a fresh process; ``library`` False: our library is not loaded."""
        line = [str(self.driver), command, str(self.library) if library else "-", *map(str, words)]
        return subprocess.run(
            line, capture_output=True, text=True, check=False, timeout=300, env=self._environment(), errors="replace"
        )

    def run(self, command: str, *words: object) -> str:
        """What the driver printed; fails the test where it does."""
        done = self.call(command, *words)
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, (str(self.tensorrt), os.environ.get("LD_LIBRARY_PATH"))))
        return os.environ | {"LD_LIBRARY_PATH": path}


def find_tensorrt() -> tuple[Headers, Path, Toolchain]:
    """Headers and libraries of one TensorRT, and nvcc; skips the test with what is missing."""
    headers_folder, libraries = os.environ.get(HEADERS_VARIABLE), os.environ.get(LIBRARIES_VARIABLE)
    if not headers_folder or not libraries:
        pytest.skip(f"needs TensorRT: {HEADERS_VARIABLE} and {LIBRARIES_VARIABLE} name its folders")
    cuda = os.environ.get(CUDA_VARIABLE)
    try:
        (headers,) = find_headers((), Path(headers_folder))
        toolchain = find_toolchain(Path(cuda) if cuda else None)
    except BackendError as error:
        pytest.skip(str(error))
    if not (Path(libraries) / f"libnvinfer.so.{headers.major}").is_file():
        pytest.skip(f"needs libnvinfer.so.{headers.major} in {libraries}")
    return headers, Path(libraries), toolchain


def build_workshop(folder: Path, capability: str) -> Workshop:
    """Everything for GPUs of ``capability`` ("90"), in ``folder``."""
    headers, libraries, toolchain = find_tensorrt()
    architecture = f"{capability}a" if capability == "90" else capability
    plan = PluginBuild(toolchain=toolchain, headers=(headers,), architectures=(f"{architecture}-real",), output=folder)
    kernels, plugins = build_plugins(plan, Silent())
    tensorrt = Workshop(
        major=headers.major, library=plugins.path, driver=folder / "tensorrt_driver", tensorrt=libraries
    )
    _compile_driver(tensorrt, headers.folder, toolchain, kernels.path, capability)
    return tensorrt


def _compile_driver(workshop: Workshop, headers: Path, toolchain: Toolchain, kernels: Path, capability: str) -> None:
    linked = [f"libnvinfer.so.{workshop.major}"] + ([f"libnvonnxparser.so.{workshop.major}"] * (workshop.major >= 10))
    command = [
        *(str(toolchain.nvcc), "-std=c++17", "-O2", f"-arch=sm_{capability}"),
        *("-isystem", str(headers), "-I", str(ROOT / "plugins" / "csrc" / "kernels")),
        *("-L", str(toolchain.libraries), "-L", str(workshop.tensorrt), "-L", str(kernels.parent)),
        *(str(DRIVER), "-o", str(workshop.driver), "-ldl"),
        *("-Xlinker", "--allow-shlib-undefined", "-Xlinker", f"-rpath={kernels.parent}"),
        *(word for name in (*linked, kernels.name) for word in ("-Xlinker", f"-l:{name}")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[-4000:]}"
