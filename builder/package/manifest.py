"""Writes and reads ``engine.json`` on the disk, and checks a folder against it. The format is ``contract.manifest``."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from draftsmith.model_repo.contract.errors import ManifestError
from draftsmith.model_repo.contract.manifest import MANIFEST_NAME, EngineFile, Manifest

from ..progress import Progress

_CHUNK = 1 << 20


def hash_file(path: Path, progress: Progress) -> str:
    """SHA-256 of a file in hex, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file, progress.stage(f"hash {path.name}", total=path.stat().st_size, unit="bytes") as stage:
        while piece := file.read(_CHUNK):
            digest.update(piece)
            stage.advance(len(piece))
    return digest.hexdigest()


def describe_files(folder: Path, names: Iterable[str], progress: Progress) -> list[EngineFile]:
    """Name, size and checksum of each file, in the order given."""
    return [
        EngineFile(name=name, num_bytes=(folder / name).stat().st_size, sha256=hash_file(folder / name, progress))
        for name in names
    ]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write ``engine.json``; it is read back strictly first, so that a bad one is never written."""
    values = manifest.to_dict()
    Manifest.from_dict(values)
    (folder / MANIFEST_NAME).write_text(json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an engine folder; raises ``ManifestError`` where it is missing or not what it must be."""
    path = folder / MANIFEST_NAME
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ManifestError(MANIFEST_NAME, expected="a file", found="none", where=str(folder)) from error
    except (OSError, ValueError) as error:
        raise ManifestError(MANIFEST_NAME, expected="JSON", found=str(error), where=str(folder)) from error
    if not isinstance(values, dict):
        raise ManifestError(MANIFEST_NAME, expected="an object", found=type(values).__name__, where=str(folder))
    return Manifest.from_dict(values)


def check_files(folder: Path, manifest: Manifest, progress: Progress | None = None) -> None:
    """Raise ``ManifestError`` for the first file that is missing or of another size.

    With ``progress`` the checksums are compared too.
    """
    for entry in manifest.files:
        path = folder / entry.name
        if not path.is_file():
            raise ManifestError(entry.name, expected="a file", found="none", where=str(folder), action=_REBUILD)
        size = path.stat().st_size
        if size != entry.num_bytes:
            raise ManifestError(
                entry.name,
                expected=f"{entry.num_bytes:,} bytes",
                found=f"{size:,}",
                where=str(folder),
                action=_REBUILD,
            )
        if progress is not None and hash_file(path, progress) != entry.sha256:
            raise ManifestError(
                entry.name,
                expected=f"SHA-256 {entry.sha256[:12]}...",
                found="another",
                where=str(folder),
                action=_REBUILD,
            )


_REBUILD = "Copy the package again or rebuild it"
