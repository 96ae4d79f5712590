"""Is there room: on the disk before a build, in memory before serving. Numbers and errors only."""

import shutil
from pathlib import Path

from draftsmith.model_repo.contract.manifest import Manifest

from ..errors import BuildError, ServeError

# What Python, the runtime and its working buffers take beside weights and cache (measured: 150 MB for SmolLM2).
PROCESS_BYTES = 200_000_000
_MARGIN = 1.05


def check_disk(folder: Path, need_bytes: int) -> None:
    """Raise ``BuildError`` where the disk of ``folder`` (which need not exist) has less than ``need_bytes`` free."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    need = int(need_bytes * _MARGIN)
    free = shutil.disk_usage(place).free
    if free < need:
        raise BuildError(
            "disk",
            expected=f"about {need:,} bytes free",
            found=f"{free:,}",
            where=str(place),
            action="Free some space or choose another --output",
        )


def measure_files(path: Path) -> int:
    """Bytes of a file, or of a folder's files and those of its folders."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def serving_bytes(manifest: Manifest) -> int:
    """Bytes that a served model needs once every slot is full: weights, the caches of target and draft, process.

    FP16 weights are counted as float32: a CPU without FP16 arithmetic holds them so.
    """
    weights = sum(entry.num_bytes for entry in manifest.files) * (2 if manifest.precision == "fp16" else 1)
    return weights + _cache_bytes(manifest) + _draft_cache_bytes(manifest) + PROCESS_BYTES


def _cache_bytes(manifest: Manifest) -> int:
    return manifest.max_batch * manifest.kv_cache.slot_bytes


def _draft_cache_bytes(manifest: Manifest) -> int:
    return 0 if manifest.draft is None else manifest.max_batch * manifest.draft.kv_cache.slot_bytes


def check_memory(manifests: dict[str, Manifest], available_bytes: int) -> None:
    """Raise ``ServeError`` where the models together need more memory than the machine has, with the bytes of each."""
    needs = {name: serving_bytes(manifest) for name, manifest in manifests.items()}
    total = sum(needs.values())
    if total <= available_bytes:
        return
    parts = "; ".join(
        f"{name} {needs[name]:,} of which cache {_cache_bytes(m):,}"
        + (f" and the draft's {_draft_cache_bytes(m):,}" if m.draft else "")
        + f" for {m.max_batch} slots of {m.max_length:,} tokens"
        for name, m in manifests.items()
    )
    raise ServeError(
        "memory",
        expected=f"{total:,} bytes ({parts})",
        found=f"{available_bytes:,}",
        where="this machine",
        action="Serve fewer models with --model, or build with a smaller --max-batch or --max-length",
    )


def machine_memory() -> int:
    """Bytes of memory this process may use: the machine's, or its control group's limit where that is less."""
    total = _meminfo_total()
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(name).read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue
    return total


def _meminfo_total() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 1 << 62
