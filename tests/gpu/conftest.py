"""The kernels on a GPU: a library from DRAFTSMITH_PLUGIN_KERNELS, or built on the spot where nvcc is. LossyAccept also
without a GPU: emulated, from DRAFTSMITH_EMULATED_KERNELS or built where g++ is."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from draftsmith.plugins.kernel_library import LIBRARY_VARIABLE, KernelLibrary

from tests.gpu.emulated_cases import EMULATED_VARIABLE
from tests.gpu.kernel_build import build_emulated, build_kernels, find_nvcc
from tests.gpu.machines import Emulated, Gpu, Machine

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and "emulated" not in item.name:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def gpu() -> str:
    """Its compute capability, as nvcc names it ("90")."""
    torch = pytest.importorskip("torch", reason="needs torch, for device memory")
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    major, minor = torch.cuda.get_device_capability()
    return f"{major}{minor}"


@pytest.fixture(scope="session")
def kernels(gpu: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelLibrary]:
    given = os.environ.get(LIBRARY_VARIABLE)
    if given:
        yield KernelLibrary(Path(given))
        return
    nvcc = find_nvcc()
    if nvcc is None:
        pytest.skip(f"needs nvcc, or a library named by {LIBRARY_VARIABLE}")
    yield KernelLibrary(build_kernels(tmp_path_factory.mktemp("kernels"), nvcc, gpu))


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> KernelLibrary:
    given = os.environ.get(EMULATED_VARIABLE)
    if given:
        return KernelLibrary(Path(given))
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    return KernelLibrary(build_emulated(tmp_path_factory.mktemp("emulated"), compiler))


@pytest.fixture(scope="session", params=["gpu", "emulated"])
def machine(request: pytest.FixtureRequest) -> Machine:
    if request.param == "gpu":
        return Gpu(request.getfixturevalue("kernels"))
    return Emulated(request.getfixturevalue("emulated"))
