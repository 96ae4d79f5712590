"""What is installed: engine backends and the server, as plain values for printing."""

from typing import Any

from .engines import BACKEND_NAMES, get_builder
from .errors import BackendError
from .serve.locate import INSTALL_HINT, find_triton


def list_installed() -> list[dict[str, Any]]:
    """One row each: ``name``, ``kind``, ``available``, ``version`` (None where unknown), ``note``."""
    rows = []
    for name in BACKEND_NAMES:
        status = get_builder(name).available()
        note = "" if status.is_available else ". ".join(filter(None, (status.reason, status.install)))
        rows.append(_row(name, "engine", status.version, note, available=status.is_available))
    return [*rows, _describe_triton()]


def _describe_triton() -> dict[str, Any]:
    try:
        triton = find_triton()
    except BackendError as error:
        return _row("triton", "server", None, f"{error.found}. {INSTALL_HINT}", available=False)
    version = "2.51.0" if triton.bundled_root is not None else None
    source = "nvidia-pytriton" if triton.bundled_root is not None else str(triton.program)
    return _row("triton", "server", version, source, available=True)


def _row(name: str, kind: str, version: str | None, note: str, *, available: bool) -> dict[str, Any]:
    return {"name": name, "kind": kind, "available": available, "version": version, "note": note}
