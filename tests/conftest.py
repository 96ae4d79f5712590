"""Fixtures that every part may use.

The repository's root is on ``sys.path`` (``pythonpath`` in pyproject.toml) so that tests can write
``from tests.tiny_models import write_tiny_checkpoint``; the packages themselves are imported as ``draftsmith.*`` only.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tiny_models import write_tiny_checkpoint


@pytest.fixture
def tiny_checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """``tiny_checkpoint("qwen3", num_hidden_layers=1)`` writes a folder and returns it."""

    def write(architecture: str, **options: object) -> Path:
        return write_tiny_checkpoint(tmp_path / f"{architecture}-checkpoint", architecture, **options)  # type: ignore[arg-type]

    return write
