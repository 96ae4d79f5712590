"""Finds TensorRT-RTX (the wheels of the ``rtx`` extra); nothing is imported before an engine is built."""

import importlib
import importlib.util
import logging
from importlib import metadata
from typing import Any

from ...errors import BackendError

BINDINGS = "tensorrt-rtx-cu13-bindings"
LIBRARIES = "tensorrt-rtx-cu13-libs"
INSTALL_HINT = "pip install 'draftsmith[rtx]'"
CUDA_MAJOR = 13
MIN_DRIVER = 580
"""The first NVIDIA driver with CUDA 13, which the ``cu13`` wheels are built with."""
OLDEST_VERSION = (1, 7)
"""The first release whose parser takes the cache update and attention operators of opset 24 (tried: 1.7.1)."""

_logger = logging.getLogger(__name__)


def find_version() -> str | None:
    """Version of the installed bindings, None where a wheel is missing. Imports nothing."""
    try:
        metadata.version(LIBRARIES)
        return metadata.version(BINDINGS)
    except metadata.PackageNotFoundError:
        return None


def check_version() -> None:
    """Raise ``BackendError`` where the wheels are missing or too old. Imports nothing."""
    version = find_version()
    if version is None:
        raise BackendError(
            "backend tensorrt-rtx",
            expected=f"the packages {LIBRARIES} and {BINDINGS}",
            found="not both installed",
            action=f"Run: {INSTALL_HINT}",
        )
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise BackendError(BINDINGS, expected=f"{oldest} or newer", found=version, action=f"Run: {INSTALL_HINT}")


def load_library() -> Any:
    """The module ``tensorrt_rtx_bindings``.

    Raises ``BackendError`` where the wheels are missing, too old, or do not load on this machine.
    """
    check_version()
    try:
        return importlib.import_module("tensorrt_rtx_bindings")
    except (ImportError, OSError) as error:
        raise BackendError(
            BINDINGS, expected="to load", found=str(error), action="It needs Linux on x86-64 with glibc 2.28 or newer"
        ) from error


def make_log(library: Any) -> Any:
    """A logger object for TensorRT: what it says goes to ``logging``, its errors are also kept in ``log.errors``."""
    levels = {
        library.ILogger.INTERNAL_ERROR: logging.ERROR,
        library.ILogger.ERROR: logging.ERROR,
        library.ILogger.WARNING: logging.WARNING,
        library.ILogger.INFO: logging.DEBUG,
        library.ILogger.VERBOSE: logging.DEBUG,
    }

    class Log(library.ILogger):  # type: ignore[misc]  # the base is known when the wheel is loaded
        def __init__(self) -> None:
            library.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            level = levels.get(severity, logging.DEBUG)
            if level == logging.ERROR:
                # Its CUDA check complains on every machine without a driver; builds go on.
                if "CUDA driver version is insufficient" in message:
                    level = logging.DEBUG
                else:
                    self.errors.append(message)
            _logger.log(min(level, logging.DEBUG), "%s", message)

    return Log()
