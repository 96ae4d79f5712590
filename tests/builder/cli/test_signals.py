"""Ctrl-C, SIGTERM and a closed terminal in the middle of a build: the shell's exit code, and nothing half-written."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# A build that has written half of its weights, says so, and would go on for a minute.
BUILD = """
import sys, time
from draftsmith.builder.cli.app import run
from draftsmith.builder.engines.onnxruntime import OnnxRuntimeBuilder

def build(self, checkpoint, options, folder, *, progress):
    (folder / "target.weights").write_bytes(b"half")
    print("half", flush=True)
    time.sleep(60)

OnnxRuntimeBuilder.build = build
sys.exit(run(["build", *sys.argv[1:], "--quiet"]))
"""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str)
def test_an_interrupted_build_leaves_nothing(
    tiny_checkpoint: Callable[..., Path], tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    output = tmp_path / "out" / "repository"
    command = [sys.executable, "-c", BUILD, str(tiny_checkpoint("llama")), "-o", str(output), "-p", "fp16"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as build:
        assert build.stdout is not None
        assert build.stdout.readline() == "half\n"
        assert list(output.parent.glob(".*.partial"))
        build.send_signal(sent)
        _, errors = build.communicate(timeout=30)
    assert build.returncode == code
    assert "Traceback" not in errors
    assert not output.parent.exists()
