"""Finds the TensorRT plugin library that an engine needs, checks that it is the right one, and loads it.

A library says who it is in its own file (``csrc/tensorrt/library.h``), so it is checked before it is loaded, and before
the engine is read. Building one is ``build-engine plugins build``.
"""

import ctypes
import json
import mmap
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

VERSION = 1
"""DRAFTSMITH_PLUGINS_VERSION of the sources beside this file."""
PLUGINS = ("SpecVocabHead", "LossyAccept")
PLUGIN_VERSION = "1"
NAMESPACE = "draftsmith"
TENSORRT_MAJORS = (8, 10, 11)
TRITON_OPTION = "--backend-config=tensorrt,plugins={path}"
_MARK = b"draftsmith-plugins:{"
_KEYS = ("plugin_library", "plugins_version", "plugins", "tensorrt")
_BUILD = "build-engine plugins build"


class PluginLibraryError(Exception):
    """A plugin library is missing, damaged, or not the one that is needed.

    ``<subject>: expected <X>, found <Y> (<where>). <What to do>.`` with the same facts as attributes.
    """

    def __init__(self, subject: str, *, expected: str, found: str, where: str = "", action: str = "") -> None:
        self.subject = subject
        self.expected = expected
        self.found = found
        self.where = where
        self.action = action
        place = f" ({where})" if where else ""
        super().__init__(f"{subject}: expected {expected}, found {found}{place}." + (f" {action}." if action else ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginLibrary:
    """What a library's file says of itself.

    ``version``: of its plugins and their layout in engines. ``tensorrt`` and ``cuda``: majors. ``architectures``: as
    CMake lists them ("90-real,120").
    """

    path: Path
    version: int
    kernels_version: int
    tensorrt: int
    cuda: int
    machine: str
    architectures: str
    plugins: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRequirement:
    """What an engine needs: a library by name, its version, its plugins, and the major of TensorRT that built it."""

    library: str
    version: int
    plugins: tuple[str, ...]
    tensorrt: int

    def to_requires(self) -> dict[str, str]:
        """Entries of the manifest's ``requires``."""
        values = (self.library, str(self.version), ",".join(self.plugins), str(self.tensorrt))
        return dict(zip(_KEYS, values, strict=True))

    @classmethod
    def from_requires(cls, requires: Mapping[str, str]) -> Self | None:
        """What ``to_requires`` wrote, None for an engine without plugins; raises ``PluginLibraryError``."""
        present = [key for key in _KEYS if key in requires]
        if "plugin_library" not in present:
            return None
        if len(present) < len(_KEYS):
            raise PluginLibraryError("requires", expected=", ".join(_KEYS), found=", ".join(present))
        library, version, plugins, tensorrt = (requires[key] for key in _KEYS)
        if not version.isdecimal() or not tensorrt.isdecimal():
            raise PluginLibraryError("requires", expected="whole numbers as versions", found=f"{version}, {tensorrt}")
        if Path(library).name != library or not library:
            raise PluginLibraryError("requires", expected="a file name as plugin_library", found=repr(library))
        names = tuple(name for name in plugins.split(",") if name)
        return cls(library=library, version=int(version), plugins=names, tensorrt=int(tensorrt))

    @property
    def description(self) -> str:
        """``SpecVocabHead version 1``."""
        return " and ".join(f"{name} version {PLUGIN_VERSION}" for name in self.plugins)


def library_name(tensorrt: int, cuda: int) -> str:
    """The file name of the library for two majors."""
    return f"libdraftsmith_plugins_trt{tensorrt}_cu{cuda}.so"


def read_library(path: Path) -> PluginLibrary:
    """What the file at ``path`` says of itself, without loading it; raises ``PluginLibraryError``."""
    subject, expected = f"plugin library {path.name}", "a draftsmith plugin library"
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            text = _metadata(content)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise PluginLibraryError(subject, expected=expected, found=str(error), where=str(path)) from error
    if text is None:
        raise PluginLibraryError(
            subject, expected=expected, found="a file without its mark", where=str(path), action=_rebuild("")
        )
    try:
        return _parse(path, json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise PluginLibraryError(
            subject, expected=expected, found=f"damaged metadata: {error}", where=str(path), action=_rebuild("")
        ) from error


def _metadata(content: mmap.mmap) -> bytes | None:
    start = content.find(_MARK)
    end = content.find(b"\0", start)
    return None if start < 0 or end < 0 else content[start + len(_MARK) - 1 : end]


def _parse(path: Path, values: dict[str, Any]) -> PluginLibrary:
    numbers = {name: int(values[name]) for name in ("version", "kernels_version", "tensorrt", "cuda")}
    plugins = tuple(str(name) for name in values["plugins"])
    machine, architectures = str(values["machine"]), str(values["architectures"])
    return PluginLibrary(path=path, machine=machine, architectures=architectures, plugins=plugins, **numbers)


def find_library(requirement: PluginRequirement, folders: Iterable[Path]) -> Path:
    """The first of ``folders`` that holds the file; raises ``PluginLibraryError`` where none does."""
    searched = list(folders)
    for folder in searched:
        path = folder / requirement.library
        if path.is_file():
            return path
    option = TRITON_OPTION.format(path=f"FOLDER/{requirement.library}")
    raise PluginLibraryError(
        f"plugin library {requirement.library}",
        expected=f"version {requirement.version} with {requirement.description}, which the engine needs",
        found="no such file",
        where=", ".join(map(str, searched)) or "no folder was given",
        action=f"Put it beside engine.json; Triton's TensorRT backend loads it with `{option}`. "
        f"{_rebuild(_version_word(requirement.tensorrt))}",
    )


def check_library(library: PluginLibrary, requirement: PluginRequirement) -> None:
    """Raise ``PluginLibraryError`` unless the engine can be read with ``library`` on this machine."""
    missing = [name for name in requirement.plugins if name not in library.plugins]
    word = _version_word(requirement.tensorrt)
    facts = (
        (f"version {requirement.version}", f"version {library.version}", library.version == requirement.version),
        (f"TensorRT {requirement.tensorrt}", f"TensorRT {library.tensorrt}", library.tensorrt == requirement.tensorrt),
        (f"a library for {platform.machine()}", library.machine, library.machine == platform.machine()),
        (requirement.description, ", ".join(library.plugins) or "none", not missing),
    )
    for expected, found, fits in facts:
        if not fits:
            raise PluginLibraryError(
                f"plugin library {library.path.name}",
                expected=f"{expected} (the engine holds {requirement.description})",
                found=found,
                where=str(library.path),
                action=f"{_rebuild(word)}, or build the engine again; what Triton loads is set by "
                f"`{TRITON_OPTION.format(path=library.path)}`",
            )


def load_library(requirement: PluginRequirement, folders: Iterable[Path]) -> PluginLibrary:
    """Find, check and load: TensorRT's registry of this process knows the plugins afterwards.

    Raises ``PluginLibraryError``; loading twice does nothing more.
    """
    library = read_library(find_library(requirement, folders))
    check_library(library, requirement)
    subject = f"plugin library {library.path.name}"
    try:
        loaded = ctypes.CDLL(str(library.path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise PluginLibraryError(
            subject,
            expected=f"to be loaded, for {requirement.description}",
            found=str(error),
            where=str(library.path),
            action=f"Install TensorRT {library.tensorrt} (libnvinfer.so.{library.tensorrt}), or put its folder on "
            "LD_LIBRARY_PATH",
        ) from error
    num_registered = int(loaded.draftsmith_plugins_register())
    if num_registered < len(library.plugins):
        raise PluginLibraryError(
            subject,
            expected=f"to register {', '.join(library.plugins)} version {PLUGIN_VERSION}",
            found=f"{num_registered} of {len(library.plugins)} registered",
            where=str(library.path),
            action="Load one draftsmith plugin library a process",
        )
    return library


def _version_word(tensorrt: int) -> str:
    return "8.6" if tensorrt == 8 else str(tensorrt)


def _rebuild(word: str) -> str:
    return f"Build it with `{_BUILD}{f' --tensorrt {word}' if word else ''}`"
