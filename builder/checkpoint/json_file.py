"""JSON files of a checkpoint folder: bounded size, one object, errors that name the file."""

import json
from pathlib import Path
from typing import Any

from draftsmith.builder.errors import CheckpointError

MAX_JSON_BYTES = 200_000_000


def read_text_file(path: Path, *, limit: int = MAX_JSON_BYTES) -> str:
    """UTF-8 text of a file of at most ``limit`` bytes."""
    try:
        size = path.stat().st_size
        if size > limit:
            raise CheckpointError(path.name, expected=f"at most {limit} bytes", found=str(size), where=str(path))
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise CheckpointError(path.name, expected="the file", found="none", where=str(path)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(path.name, expected="UTF-8 text", found=str(error)[:200], where=str(path)) from error


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; ``CheckpointError`` when it is missing or something else."""
    text = read_text_file(path)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(path.name, expected="JSON", found=str(error)[:200], where=str(path)) from error
    if not isinstance(values, dict):
        raise CheckpointError(path.name, expected="a JSON object", found=type(values).__name__, where=str(path))
    return values


def read_optional_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, empty when there is no such file."""
    return read_json_object(path) if path.exists() else {}
