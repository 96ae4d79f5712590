"""The plugin libraries of a folder, as plain values for printing."""

from pathlib import Path
from typing import Any

from draftsmith.plugins.tensorrt_library import PluginLibraryError, read_library

from ..errors import BuildError


def list_libraries(folder: Path) -> list[dict[str, Any]]:
    """A row for each library of ``folder``; raises ``BuildError`` for a file of this name that is none."""
    rows = []
    for path in sorted(folder.glob("libdraftsmith_plugins_*.so")):
        try:
            library = read_library(path)
        except PluginLibraryError as error:
            raise BuildError(
                error.subject, expected=error.expected, found=error.found, where=error.where, action=error.action
            ) from error
        rows.append(
            {
                "path": library.path,
                "version": library.version,
                "tensorrt": library.tensorrt,
                "cuda": library.cuda,
                "machine": library.machine,
                "architectures": library.architectures,
                "plugins": ", ".join(library.plugins),
                "num_bytes": path.stat().st_size,
            }
        )
    return rows
