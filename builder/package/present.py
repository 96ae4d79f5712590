"""What stands at a destination already: up to date, replaceable, or not ours to delete."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from draftsmith.model_repo.contract.errors import ManifestError
from draftsmith.model_repo.contract.manifest import MANIFEST_NAME, Manifest

from ..errors import BuildError
from ..progress import Silent
from .manifest import check_files, read_manifest
from .model_folder import VERSION_FOLDER, same_model_files


def read_if_intact(folder: Path) -> Manifest | None:
    """The manifest of an engine whose files are all as it says, else None.

    In a package (``<model>/1``) the files around the engine must be those that would be written today.
    """
    try:
        manifest = read_manifest(folder)
        check_files(folder, manifest, Silent())
    except (ManifestError, OSError):
        return None
    is_whole = folder.name != VERSION_FOLDER or same_model_files(folder.parent, folder.parent.name, manifest)
    return manifest if is_whole else None


def check_replaceable(folder: Path, model_name: str, checkpoint: str | None, *, force: bool, subfolder: str) -> None:
    """Raise ``BuildError`` where ``folder`` is something that a build must not delete.

    That is: a folder that is no package of ours, or (without ``force``) one of another model or ``checkpoint``.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    present = _read_any_version(folder / subfolder / MANIFEST_NAME)
    if present is None:
        raise BuildError(
            str(folder),
            expected=f"nothing, or a package with {Path(subfolder) / MANIFEST_NAME}",
            found="something else",
            action="Move it away or choose another --output or --name",
        )
    build = present.get("build")
    found = build.get("checkpoint") if isinstance(build, Mapping) else None
    other = present["model_name"] != model_name or (checkpoint is not None and found != checkpoint)
    if other and not force:
        raise BuildError(
            str(folder),
            expected=f"a package of {model_name}" + (f" from {checkpoint}" if checkpoint else ""),
            found=f"one of {present['model_name']} from {found}",
            action="Choose another --name, or replace it with --force",
        )


def _read_any_version(path: Path) -> Mapping[str, Any] | None:
    """engine.json of this or another version of draftsmith, which may hold other keys; None for anything else."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    is_ours = isinstance(values, dict) and {"format_version", "model_name", "files"} <= values.keys()
    return values if is_ours else None
