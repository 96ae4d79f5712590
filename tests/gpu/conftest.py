"""The kernels on a GPU: a library from DRAFTSMITH_PLUGIN_KERNELS, or built on the spot where nvcc is."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from draftsmith.plugins.kernel_library import LIBRARY_VARIABLE, KernelLibrary

from tests.gpu.kernel_build import build_kernels, find_nvcc

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
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
