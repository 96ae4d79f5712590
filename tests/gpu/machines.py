"""Where LossyAccept's kernel runs in tests: on a GPU, in torch's memory, or emulated on the host, in NumPy's."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from draftsmith.plugins.kernel_library import KernelLibrary

ALIGNMENT = 256
Bytes = npt.NDArray[np.uint8]


class Memory(Protocol):
    """Bytes that the kernel reaches."""

    @property
    def address(self) -> int: ...
    def read(self) -> Bytes: ...
    def write(self, values: npt.NDArray[Any]) -> None: ...


class Machine(Protocol):
    """A library of kernels and memory for it."""

    library: KernelLibrary

    @property
    def stream(self) -> int: ...
    def place(self, values: npt.NDArray[Any], offset: int = 0) -> Memory:
        """A copy of an array, ``offset`` bytes behind an aligned address."""
        ...


def as_bytes(values: npt.NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


class GpuMemory:
    def __init__(self, values: Bytes, offset: int) -> None:
        import torch

        self._tensor = torch.zeros(len(values) + offset, dtype=torch.uint8, device="cuda")[offset:]
        self.write(values)

    @property
    def address(self) -> int:
        return int(self._tensor.data_ptr())

    def read(self) -> Bytes:
        found: Bytes = self._tensor.cpu().numpy()
        return found

    def write(self, values: npt.NDArray[Any]) -> None:
        import torch

        self._tensor.copy_(torch.from_numpy(as_bytes(values).copy()))


class Gpu:
    def __init__(self, library: KernelLibrary) -> None:
        self.library = library

    @property
    def stream(self) -> int:
        import torch

        return int(torch.cuda.current_stream().cuda_stream)

    def place(self, values: npt.NDArray[Any], offset: int = 0) -> GpuMemory:
        return GpuMemory(as_bytes(values), offset)


class HostMemory:
    def __init__(self, values: Bytes, offset: int) -> None:
        memory = np.zeros(len(values) + offset + ALIGNMENT, np.uint8)
        begin = -memory.ctypes.data % ALIGNMENT + offset
        self._bytes = memory[begin : begin + len(values)]
        self.write(values)

    @property
    def address(self) -> int:
        return int(self._bytes.ctypes.data)

    def read(self) -> Bytes:
        return self._bytes.copy()

    def write(self, values: npt.NDArray[Any]) -> None:
        self._bytes[:] = as_bytes(values)


class Emulated:
    """``emulator/``: launches end before they return."""

    stream = 0

    def __init__(self, library: KernelLibrary) -> None:
        self.library = library

    def place(self, values: npt.NDArray[Any], offset: int = 0) -> HostMemory:
        return HostMemory(as_bytes(values), offset)
