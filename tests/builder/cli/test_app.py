"""The command line: exit codes, one line of error, help, versions."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from draftsmith.builder import pipeline
from draftsmith.builder.cli import app
from draftsmith.builder.errors import BackendError, BuildError, CheckpointError, ServeError, UsageError
from draftsmith.model_repo.contract.errors import ManifestError

COMMANDS = sorted(app.command_options())


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("DRAFTSMITH_DEBUG", raising=False)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_explains_itself_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Example: build-engine {command}" in shown


def test_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--version"]) == 0
    assert capsys.readouterr().out == f"draftsmith {metadata.version('draftsmith')}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["build", "x", "-o", "y", "--max-bach", "2"], ["--max-bach", "--max-batch"]),
        (["bild"], ["bild", "build"]),
        (["build", "x"], ["--output"]),
        (["serve", "x", "--http-port", "many"], ["--http-port", "integer"]),
        (["build", "x", "-o", "y", "--precision", "int7"], ["--precision", "int7", "int8"]),
        (["build", "x", "-o", "y", "--max-batch", "0"], ["--max-batch", "0"]),
        (["build", "x", "-o", "y", "--max-kl", "nan"], ["--max-kl", "nan"]),
        (["build", "x", "-o", "y", "--name", "../x"], ["--name", "../x"]),
        (["build", "x", "-o", "y", "--gpu", "rtx4090"], ["--gpu", "rtx4090"]),
        (["build", "x", "-o", "y", "--backend", "tensorrt"], ["--backend", "tensorrt-rtx"]),
        (["build", "x", "-o", "y", "--kernels", "mine"], ["--kernels", "mine", "native"]),
        (["build", "x", "-o", "y", "--gpu", "sm86"], ["--gpu", "tensorrt-rtx", "onnxruntime"]),
        (["build", "x", "-o", "y", "--name", ""], ["--name", "''"]),
        (["build", "x", "-o", ""], ["path", "empty argument"]),
        (["inspect", ""], ["path", "empty argument"]),
        (["serve", ""], ["path", "empty argument"]),
        (["build", "x", "-o", "/dev/null"], ["--output: expected a folder, found a file (/dev/null)."]),
        (["compile", "x", "-o", "/dev/null/a/b"], ["--output: expected a folder, found a file (/dev/null)."]),
        (["package", "x", "-o", "/dev/null"], ["--output: expected a folder, found a file (/dev/null)."]),
        (["build", "x", "-o", "y", "--calibration-text", "/"], ["--calibration-text: expected a file, found a folder"]),
        (["inspect", "x", "--max-batch", "0"], ["--max-batch", "0"]),
        (["inspect", "x", "--max-length", "-5"], ["--max-length", "-5"]),
        (["serve", "x", "--threads", "0"], ["--threads", "0"]),
        (["serve", "x", "--grace", "nan"], ["--grace: expected 0 to 86,400 seconds, found nan"]),
        (["serve", "x", "--grace", "-1"], ["--grace", "-1"]),
        (["serve", "x", "--ready-timeout", "inf"], ["--ready-timeout", "inf"]),
        (["serve", "x", "--http-port", "70000"], ["--http-port", "70000"]),
        (["serve", "x", "--http-port", "9", "--grpc-port", "9"], ["--http-port", "--grpc-port"]),
    ],
)
def test_a_wrong_option_is_named_in_one_line_with_exit_code_2(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.fullmatch(r"error: [^\n]+\n", shown.err)
    assert all(word in shown.err for word in words)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("a", found="b"), 2),
        (CheckpointError("a", found="b"), 3),
        (BackendError("a", found="b"), 4),
        (BuildError("a", found="b"), 5),
        (ManifestError("a", found="b"), 5),
        (ServeError("a", found="b"), 6),
        (OSError(5, "Input/output error", "disk"), 5),
        (KeyboardInterrupt(), 130),
        (RuntimeError("odd\nlines"), 5),
    ],
)
def test_every_error_has_its_exit_code_and_no_traceback(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(pipeline, "build", fail)
    assert app.run(["build", "x", "-o", "y"]) == code
    shown = capsys.readouterr().err
    assert "Traceback" not in shown
    assert shown.count("\n") <= 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_bug(closed: str) -> None:
    # Nothing listens at port 1; the prompt of a closed input is the empty text, a usage error found first.
    command = f'{sys.executable} -c "from draftsmith.builder.cli import main; main()" generate localhost:1 - {closed}'
    ended = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, input="")
    assert ended.returncode == 2
    assert "bug" not in ended.stderr and "Traceback" not in ended.stderr


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DRAFTSMITH_DEBUG", "1")
    assert app.run(["inspect", "/not/there"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_inspect_says_the_same_in_words_and_in_json(
    tiny_checkpoint: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tiny_checkpoint("qwen3")
    assert app.run(["inspect", str(folder), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["spec"]["architecture"] == "qwen3"
    assert app.run(["inspect", str(folder)]) == 0
    words = capsys.readouterr().out
    assert re.search(r"architecture +qwen3\n", words)
    assert re.search(rf"hidden_size +{values['spec']['hidden_size']}\n", words)


def test_backends_lists_each_with_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["backends", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["onnxruntime"]["version"] == metadata.version("onnxruntime")
    assert {"onnxruntime", "tensorrt-rtx", "triton"} <= set(rows)
    assert all(row["available"] or row["note"] for row in rows.values())


def test_a_closed_pipe_ends_the_command_silently() -> None:
    code = "import sys; sys.argv[0] = 'build-engine'; from draftsmith.builder.cli import main; main()"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", code, "--version"], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")
