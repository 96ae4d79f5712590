"""Folders that appear whole or not at all: staged beside the destination, flushed, then swapped in by a rename.

A staged folder holds an advisory lock while its process lives, so whatever a killed build left behind is recognised and
removed by the next one. Knows nothing of what is inside the folders.
"""

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import BuildError

SUFFIX = ".partial"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


@contextmanager
def staged_folder(destination: Path) -> Iterator[Path]:
    """An empty folder that becomes ``destination`` when the block ends well, and vanishes when it does not.

    A folder that was there is replaced in one step. Parents that this call had to make are removed again on failure.
    Raises ``BuildError`` where the disk is full or the destination cannot be written.
    """
    destination = destination.absolute()
    made: list[Path] = []
    try:
        made = _make_parents(destination.parent)
        remove_stale(destination)
        staging = _staging_root(destination) / f"{_stem(destination)}.{os.getpid()}{SUFFIX}"
        staging.mkdir()
    except OSError as error:
        _remove_empty(made)
        raise _disk_error(error, destination) from error
    lock = _lock(staging)
    try:
        yield staging
        _flush(staging)
        _swap(staging, destination)
    except BaseException as error:
        shutil.rmtree(staging, ignore_errors=True)
        _remove_empty(made)
        failure = error if isinstance(error, OSError) else _full_disk_below(error)
        if failure is None:
            raise
        raise _disk_error(failure, destination) from error
    finally:
        os.close(lock)


def remove_stale(destination: Path) -> list[Path]:
    """Remove what killed builds of ``destination`` left and return it; staged folders of living processes stay."""
    removed = []
    for folder in _staging_root(destination).glob(f"{_stem(destination)}.*{SUFFIX}"):
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        finally:
            os.close(lock)
        shutil.rmtree(folder)
        removed.append(folder)
    return removed


def _stem(destination: Path) -> str:
    return f".{destination.parent.name}.{destination.name}"


def _staging_root(destination: Path) -> Path:
    """Beside the repository (Triton takes every folder inside it for a model), inside where it is a mount point."""
    repository = destination.absolute().parent
    return repository if os.path.ismount(repository) else repository.parent


def _make_parents(folder: Path) -> list[Path]:
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for parent in reversed(missing):
        parent.mkdir(exist_ok=True)
    return missing


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return


def _lock(folder: Path) -> int:
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return handle


def _flush(folder: Path) -> None:
    """Force every file and folder below ``folder`` to the disk, so that the rename never outruns the content."""
    for path in [folder, *folder.rglob("*")]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _swap(staging: Path, destination: Path) -> None:
    """Put ``staging`` in the place of ``destination``; what was there is deleted afterwards."""
    if not destination.exists():
        staging.rename(destination)
    elif _exchange(staging, destination):
        shutil.rmtree(staging)
    else:
        old = staging.with_suffix(".old" + SUFFIX)
        destination.rename(old)
        try:
            staging.rename(destination)
        except OSError:
            old.rename(destination)
            raise
        shutil.rmtree(old)
    for folder in {staging.parent, destination.parent}:
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two folders atomically (Linux ``renameat2``); False where the system or file system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    names = (os.fsencode(first), os.fsencode(second))
    return bool(rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)


def _full_disk_below(error: BaseException) -> OSError | None:
    """The full disk that made ``error``, where a backend has wrapped it in an error of its own."""
    cause = error.__cause__
    if isinstance(cause, OSError) and cause.errno in _DISK_FULL:
        return cause
    return _full_disk_below(cause) if cause is not None else None


def _disk_error(error: OSError, destination: Path) -> BuildError:
    place = destination.parent
    while not place.exists():
        place = place.parent
    if error.errno in _DISK_FULL:
        return BuildError(
            "disk",
            expected=f"room for {destination.name}",
            found="it full",
            where=str(place),
            action="Nothing was left behind. Free some space or choose another --output",
        )
    return BuildError(
        str(error.filename or destination),
        expected="to be written",
        found=(error.strerror or str(error)).lower(),
        where=str(place),
        action="Nothing was left behind",
    )
