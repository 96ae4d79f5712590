"""Launches of LossyAccept over memory with guards."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from draftsmith.plugins.accept_kernel import AcceptArguments, AcceptKernel

from tests.gpu.accept_cases import OUTPUTS, AcceptCase
from tests.gpu.machines import Machine

GUARD = 256  # bytes
BEHIND = 4096  # bytes of guard behind the workspace
Array = npt.NDArray[Any]


class DeviceAccept:
    """A case's tensors on a machine, the logits ``offset`` elements off an aligned address, and memory for results."""

    def __init__(self, machine: Machine, case: AcceptCase, *, offset: int = 0, clean_counters: bool = False) -> None:
        self.kernel, self.case, self._machine = AcceptKernel(machine.library), case, machine
        self.shape = case.shape(clean_counters=clean_counters)
        self.inputs = {
            name: machine.place(values, offset * values.itemsize if name == "logits" else 0)
            for name, values in case.inputs().items()
        }
        self._shapes = case.outputs()
        self._outputs = {
            name: machine.place(np.full(2 * GUARD + 4 * int(np.prod(shape)), 0xA5, np.uint8))
            for name, shape in self._shapes.items()
        }
        num_bytes, num_counters = self.kernel.workspace_bytes(self.shape)
        workspace = np.full(num_bytes + BEHIND, 0xAB, np.uint8)
        if clean_counters:
            workspace[:num_counters] = 0
        self._workspace = machine.place(workspace)
        addresses = {name: memory.address for name, memory in self.inputs.items()}
        addresses |= {name: memory.address + GUARD for name, memory in self._outputs.items()}
        names = [field.name for field in fields(AcceptArguments)]
        self.arguments = AcceptArguments(
            **{name: addresses.get(name, 0) for name in names if not name.startswith("workspace")},
            workspace=self._workspace.address,
            workspace_bytes=num_bytes,
        )

    def launch(self, **changes: int) -> None:
        self.kernel.launch(self.shape, replace(self.arguments, **changes), self._machine.stream)

    def read(self) -> dict[str, Array]:
        """The results; raises AssertionError where memory around them or the workspace was written."""
        assert (self._workspace.read()[self.arguments.workspace_bytes :] == 0xAB).all(), "workspace: written too far"
        results = {}
        for name, shape in self._shapes.items():
            memory = self._outputs[name].read()
            guards = np.concatenate([memory[:GUARD], memory[len(memory) - GUARD :]])
            assert (guards == 0xA5).all(), f"{name}: written outside"
            results[name] = memory[GUARD : len(memory) - GUARD].view(OUTPUTS[name]).reshape(shape)
        return results


def bits(results: dict[str, Array]) -> bytes:
    return b"".join(results[name].tobytes() for name in OUTPUTS)
