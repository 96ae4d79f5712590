"""Launches of LossyAccept over device memory with guards."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from draftsmith.plugins.accept_kernel import AcceptArguments, AcceptKernel
from draftsmith.plugins.kernel_library import KernelLibrary

from tests.gpu.accept_cases import OUTPUTS, AcceptCase

GUARD = 256  # bytes
Array = npt.NDArray[Any]


class DeviceAccept:
    """A case's tensors on the device, the logits ``offset`` elements off an aligned address, and memory for results."""

    def __init__(
        self, library: KernelLibrary, case: AcceptCase, *, offset: int = 0, clean_counters: bool = False
    ) -> None:
        self.kernel, self.case = AcceptKernel(library), case
        self.shape = case.shape(clean_counters=clean_counters)
        given = case.inputs()
        self.inputs = {
            name: place(values, offset * values.itemsize if name == "logits" else 0) for name, values in given.items()
        }
        self._shapes = case.outputs()
        self._outputs = {
            name: torch.full((2 * GUARD + 4 * int(np.prod(shape)),), 0xA5, dtype=torch.uint8, device="cuda")
            for name, shape in self._shapes.items()
        }
        num_bytes, num_counters = self.kernel.workspace_bytes(self.shape)
        self._workspace = torch.full((num_bytes + 4096,), 0xAB, dtype=torch.uint8, device="cuda")
        if clean_counters:
            self._workspace[:num_counters] = 0
        addresses = {name: tensor.data_ptr() for name, tensor in self.inputs.items()}
        addresses |= {name: tensor.data_ptr() + GUARD for name, tensor in self._outputs.items()}
        names = [field.name for field in fields(AcceptArguments)]
        self.arguments = AcceptArguments(
            **{name: addresses.get(name, 0) for name in names if not name.startswith("workspace")},
            workspace=self._workspace.data_ptr(),
            workspace_bytes=num_bytes,
        )

    def launch(self, **changes: int) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        self.kernel.launch(self.shape, replace(self.arguments, **changes), stream)

    def read(self) -> dict[str, Array]:
        """The results; raises AssertionError where memory around them or the workspace was written."""
        torch.cuda.synchronize()
        assert bool((self._workspace[self.arguments.workspace_bytes :] == 0xAB).all()), "workspace: written too far"
        results = {}
        for name, shape in self._shapes.items():
            memory = self._outputs[name].cpu().numpy()
            guards = np.concatenate([memory[:GUARD], memory[len(memory) - GUARD :]])
            assert (guards == 0xA5).all(), f"{name}: written outside"
            results[name] = memory[GUARD : len(memory) - GUARD].view(OUTPUTS[name]).reshape(shape)
        return results


def place(values: Array, offset: int) -> torch.Tensor:
    """Bytes on the device, ``offset`` of them behind an aligned address."""
    raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    memory = torch.zeros(len(raw) + offset, dtype=torch.uint8, device="cuda")
    memory[offset:].copy_(torch.from_numpy(raw.copy()))
    return memory[offset:]


def bits(results: dict[str, Array]) -> bytes:
    return b"".join(results[name].tobytes() for name in OUTPUTS)
