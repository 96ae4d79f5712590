"""The shell part of quickstart and test: every failure is one clear line and a non-zero exit."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "scripts"
TOOLS = ("bash", "basename", "cat", "grep", "head", "mktemp", "rm", "tail", "dirname", "env")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A PATH with a few tools and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    return folder


def add_python(folder: Path, script: str, name: str = "python3") -> None:
    """A program that behaves like Python as far as the scripts can see; ``$1`` is -c, -m or --version."""
    (folder / name).write_text(f"#!/bin/bash\n{script}\n")
    (folder / name).chmod(0o755)


def run(path: Path, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f". {SCRIPTS}/environment.sh; {command}", "quickstart"],
        env={"PATH": str(path), "TMPDIR": str(path.parent)},
        capture_output=True,
        text=True,
        check=False,
    )


def assert_one_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith("installing")]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("quickstart: ")
    assert all(word in lines[0] for word in words), lines[0]


@pytest.mark.parametrize("name", ["quickstart", "test", "environment.sh", "../.ci/run"])
def test_the_scripts_parse(name: str) -> None:
    subprocess.run(["bash", "-n", str(SCRIPTS / name)], check=True)


@pytest.mark.parametrize("name", ["quickstart", "test", "../.ci/run"])
def test_the_scripts_can_be_run(name: str) -> None:
    assert os.access(SCRIPTS / name, os.X_OK)


def test_a_machine_without_python_is_told_what_to_install(path: Path) -> None:
    assert_one_line(run(path, "make_venv venv"), "Python 3.11 to 3.13", "found none", "apt-get install python3")


def test_an_old_python_is_named(path: Path) -> None:
    add_python(path, '[ "$1" = --version ] && echo "Python 3.9.2" || exit 1')
    assert_one_line(run(path, "make_venv venv"), "found Python 3.9.2", "PYTHON=/path/to/python")


def test_a_second_python_is_taken_where_the_first_is_too_old(path: Path) -> None:
    add_python(path, "exit 1")
    add_python(path, "exit 0", name="python3.12")
    assert run(path, "find_python").stdout == f"{path}/python3.12\n"


def test_a_missing_venv_module_is_named_and_nothing_is_left(path: Path, tmp_path: Path) -> None:
    add_python(path, '[ "$1" = -c ] && exit 0; echo "ensurepip is not available"; exit 1')
    assert_one_line(run(path, f"make_venv {tmp_path}/venv"), "no venv module", "apt-get install python3-venv")
    assert not (tmp_path / "venv").exists()


def test_a_failed_download_is_named_and_tried_again_next_time(path: Path, tmp_path: Path) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    add_python(tmp_path / "venv" / "bin", 'echo "ERROR: No matching distribution found for x"; exit 1', name="python")
    for _ in range(2):
        done = run(path, f"install_once {tmp_path}/venv things -- x")
        assert_one_line(done, "pip could not install things", "No matching distribution found for x")


def test_what_is_installed_is_not_installed_again_until_its_file_changes(path: Path, tmp_path: Path) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    add_python(tmp_path / "venv" / "bin", f"echo called >> {tmp_path}/calls", name="python")
    settings = tmp_path / "pyproject.toml"
    for content, calls in (("a", 1), ("a", 1), ("b", 2)):
        settings.write_text(content)
        assert run(path, f"install_once {tmp_path}/venv things {settings} -- x").returncode == 0
        assert (tmp_path / "calls").read_text().count("called") == calls
