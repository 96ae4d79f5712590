"""Where and when an evaluation ran: processor, memory, versions, date."""

import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

_PACKAGES = ("draftsmith", "onnxruntime", "numpy", "tokenizers")
_CPU_INFO = Path("/proc/cpuinfo")
_WIDE = ("avx2", "avx512f", "avx512_vnni", "amx_int8")


def describe_machine(num_threads: int | None) -> dict[str, str]:
    """Facts by name, in the order in which a report shows them."""
    cores = len(os.sched_getaffinity(0))
    versions = [f"{name} {version}" for name, version in find_versions(_PACKAGES)]
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "processor": describe_cpu(_CPU_INFO.read_text(encoding="utf-8") if _CPU_INFO.exists() else ""),
        "cores": f"{cores} ({count_threads(num_threads)} threads used)",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "load average before": f"{os.getloadavg()[0]:.1f}",
        "versions": ", ".join([f"Python {platform.python_version()}", *versions]),
    }


def count_threads(num_threads: int | None) -> int:
    """Threads that an engine takes: those that were asked for, or one a core that this process may use."""
    return num_threads or len(os.sched_getaffinity(0))


def describe_cpu(text: str) -> str:
    """The model's name in /proc/cpuinfo, with what matters of its instruction set."""
    lines = [line.partition(":") for line in text.split("\n\n", maxsplit=1)[0].splitlines()]
    facts = {key.strip(): value.strip() for key, _, value in lines}
    name = facts.get("model name") or platform.machine() or "unknown"
    wide = [flag for flag in _WIDE if flag in facts.get("flags", "").split()]
    return f"{name} ({', '.join(wide)})" if wide else name


def find_versions(names: Iterable[str]) -> list[tuple[str, str]]:
    """Name and version of the packages that are installed."""
    found = []
    for name in names:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return found
