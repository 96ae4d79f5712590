"""Paths as arguments: an empty one (of an unset shell variable, mostly) would mean the current folder."""

from pathlib import Path

from ..errors import UsageError


def to_path(text: str | Path) -> Path:
    """The path of an argument; raises ``UsageError`` for an empty one."""
    if not str(text):
        raise UsageError("path", expected="a file or folder", found="an empty argument")
    return Path(text)


def check_output(folder: Path) -> None:
    """Raise ``UsageError`` where ``folder``, or what it would be made in, is a file."""
    for path in (folder, *folder.parents):
        if path.is_dir():
            return
        if path.exists():
            raise UsageError("--output", expected="a folder", found="a file", where=str(path))


def check_text_file(name: str, path: Path) -> None:
    """Raise ``UsageError`` where there is no text file of this name, or a folder in its place."""
    if not path.exists():
        raise UsageError(name, expected="a file", found="none", where=str(path))
    if path.is_dir():
        raise UsageError(name, expected="a file", found="a folder", where=str(path))


def check_file(name: str, path: Path) -> None:
    """Raise ``UsageError`` where ``path`` cannot become a file."""
    if path.is_dir():
        raise UsageError(name, expected="a file", found="a folder", where=str(path))
    if not path.absolute().parent.is_dir():
        raise UsageError(name, expected="a folder that exists", found=str(path.parent))
