"""How the GPU benchmarks measure: a CUDA graph of several calls, replayed often; and what machine that was."""

import datetime
import subprocess
from collections.abc import Callable

import torch

CALLS = 8
"""Calls a graph. Inputs rotate among as many copies, so nothing is warm in L2 that would be cold while serving."""
Call = Callable[[int], object]
"""Enqueues one call, over the inputs of this index, on the current stream."""


def time_call(call: Call, *, replays: int) -> float:
    """Median microseconds of one of ``CALLS`` calls in a graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for index in range(CALLS):
            call(index)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(CALLS):
            call(index)
    times = []
    for _ in range(replays + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / CALLS)
    return sorted(times[3:])[replays // 2]


def copy_bandwidth() -> float:
    """Bytes a microsecond, read and written, of a large copy on the device."""
    source = torch.empty(1 << 31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / time_call(lambda _: target.copy_(source), replays=5)


def describe_machine() -> list[str]:
    """Date, machine, clocks and versions, a line each."""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem", "--format=csv,noheader"]
    gpu = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return [
        f"- date: {now}",
        f"- GPU, driver, clocks: {gpu}",
        f"- torch {torch.__version__}, CUDA {torch.version.cuda}",
    ]
