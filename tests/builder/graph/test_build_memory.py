"""Writing a graph streams: memory is bounded by the output, not by a multiple of it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

IMPORTS = """
import sys
from pathlib import Path
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.graph.target_graph import GraphOptions, write_target_graph
from draftsmith.builder.progress import Silent
"""
WRITE = """
with open_checkpoint(Path(sys.argv[1])) as checkpoint:
    options = GraphOptions(dialect="onnxruntime", storage=sys.argv[3], capacity=64)
    write_target_graph(checkpoint, options, Path(sys.argv[2]), progress=Silent())
"""
# Of this program alone: ru_maxrss of a child starts at its parent's.
PEAK = """
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.parametrize("storage", ["fp32", "fp16"])
def test_peak_memory_is_bounded(storage: str, tiny_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """The issue's bound is 1.3 x the largest file + 500 MB; streaming needs far less, which is what is asserted."""
    folder = tiny_checkpoint(
        "llama", dtype="F16", hidden_size=512, intermediate_size=4096, num_hidden_layers=6, head_dim=128
    )
    peak = measure_peak(IMPORTS + WRITE + PEAK, str(folder), str(tmp_path), storage)

    largest = (tmp_path / "target.weights").stat().st_size
    assert largest > 80e6
    assert peak < 1.3 * largest + 500e6
    mapped = (folder / "model.safetensors").stat().st_size  # pages of the checkpoint count as resident
    assert peak < measure_peak(IMPORTS + PEAK) + mapped + 120e6


def measure_peak(program: str, *arguments: str) -> int:
    """Most resident bytes of a Python program."""
    command = [sys.executable, "-c", program, *arguments]
    return 1024 * int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
