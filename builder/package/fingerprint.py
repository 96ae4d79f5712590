"""Tells whether a package is already built: one hash over the checkpoint's content, the options and our own code."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from ..progress import Progress
from .manifest import hash_file

_KINDS = {".safetensors", ".bin", ".gguf", ".json", ".model", ".jinja", ".txt"}
_CODE = ("checkpoint", "draft", "engines", "graph", "model", "quantize", "spec", "vocabulary")


def hash_checkpoint(path: Path, progress: Progress) -> str:
    """SHA-256 of a checkpoint: of a file's content, whatever it is called, or of the names and contents of a folder's
    files."""
    if path.is_file():
        return hash_file(path, progress)
    files = sorted(f for f in path.iterdir() if f.suffix in _KINDS and f.is_file())
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\0{hash_file(file, progress)}\n".encode())
    return digest.hexdigest()


def hash_options(checkpoint_hash: str, options: Mapping[str, Any]) -> str:
    """The fingerprint of a build: same checkpoint, options, versions and code give the same one."""
    values = {"checkpoint": checkpoint_hash, "options": dict(options), "code": _hash_code()}
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


def _hash_code() -> str:
    digest = hashlib.sha256()
    for file in _code_files():
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _code_files() -> Iterator[Path]:
    builder = Path(__file__).resolve().parent.parent
    yield from sorted(file for name in _CODE for file in (builder / name).rglob("*.py"))
    # How weights are packed, and the CPU's kernels; those of the GPU are built by themselves.
    plugins = Path(str(resources.files("draftsmith.plugins")))
    yield from (plugins / "packing.py", plugins / "cpu_library.py")
    yield from sorted(file for file in (plugins / "csrc" / "cpu").iterdir() if file.suffix in (".c", ".h"))
