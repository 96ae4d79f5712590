"""What stands at a destination already: up to date, replaceable, or not ours to delete."""

from pathlib import Path

from draftsmith.model_repo.contract.errors import ManifestError
from draftsmith.model_repo.contract.manifest import MANIFEST_NAME, Manifest

from ..errors import BuildError
from .manifest import check_files, read_manifest


def read_if_intact(folder: Path) -> Manifest | None:
    """The manifest of an engine whose files are all there in their sizes, else None."""
    try:
        manifest = read_manifest(folder)
        check_files(folder, manifest)
    except ManifestError:
        return None
    return manifest


def check_replaceable(folder: Path, model_name: str, checkpoint: str | None, *, force: bool, subfolder: str) -> None:
    """Raise ``BuildError`` where ``folder`` is something that a build must not delete.

    That is: a folder that is no package of ours, or (without ``force``) one of another model or ``checkpoint``.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        present = read_manifest(folder / subfolder)
    except ManifestError as error:
        raise BuildError(
            str(folder),
            expected=f"nothing, or a package with {Path(subfolder) / MANIFEST_NAME}",
            found="something else",
            action="Move it away or choose another --output or --name",
        ) from error
    found = present.build.get("checkpoint")
    other = present.model_name != model_name or (checkpoint is not None and found != checkpoint)
    if other and not force:
        raise BuildError(
            str(folder),
            expected=f"a package of {model_name}" + (f" from {checkpoint}" if checkpoint else ""),
            found=f"one of {present.model_name} from {found}",
            action="Choose another --name, or replace it with --force",
        )
