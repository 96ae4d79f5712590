"""Staged folders: whole or nothing."""

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from draftsmith.builder.errors import BuildError
from draftsmith.builder.package import repository
from draftsmith.builder.package.repository import remove_stale, staged_folder


def leftovers(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*"))


def test_a_finished_block_leaves_exactly_its_files(tmp_path: Path) -> None:
    with staged_folder(tmp_path / "repo" / "model") as folder:
        (folder / "file").write_text("new")
        assert not (tmp_path / "repo" / "model").exists()
    assert leftovers(tmp_path) == ["repo", "repo/model", "repo/model/file"]


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(143)])
def test_any_failure_leaves_nothing_not_even_the_parents(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), staged_folder(tmp_path / "a" / "b" / "model") as folder:
        (folder / "file").write_text("half")
        raise error
    assert leftovers(tmp_path) == []


def test_a_failure_leaves_the_old_folder_as_it_was(tmp_path: Path) -> None:
    old = tmp_path / "repo" / "model"
    old.mkdir(parents=True)
    (old / "file").write_text("old")
    with pytest.raises(ValueError, match="x"), staged_folder(old) as folder:
        (folder / "file").write_text("new")
        raise ValueError("x")
    assert (old / "file").read_text() == "old"
    assert leftovers(tmp_path) == ["repo", "repo/model", "repo/model/file"]


@pytest.mark.parametrize("atomic", [True, False])
def test_an_old_folder_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, atomic: bool) -> None:
    if not atomic:
        monkeypatch.setattr(repository, "_exchange", lambda first, second: False)
    old = tmp_path / "repo" / "model"
    old.mkdir(parents=True)
    (old / "gone").write_text("old")
    with staged_folder(old) as folder:
        (folder / "file").write_text("new")
    assert leftovers(tmp_path) == ["repo", "repo/model", "repo/model/file"]


def test_a_full_disk_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    message = f"disk: expected room for model, found it full .{tmp_path}"
    with pytest.raises(BuildError, match=message), staged_folder(tmp_path / "repo" / "model") as folder:
        (folder / "file").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert leftovers(tmp_path) == []


def test_a_full_disk_that_a_backend_wrapped_is_named_too(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="disk: expected room for model"), staged_folder(tmp_path / "repo" / "model"):
        raise BuildError("graph", found="No space left") from OSError(errno.ENOSPC, "No space left on device")


def test_a_parent_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "repo").write_text("")
    with pytest.raises(BuildError, match="repo"), staged_folder(tmp_path / "repo" / "model"):
        pass


def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from draftsmith.builder.package.repository import staged_folder\n"
        "with staged_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'file').write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    model = tmp_path / "repo" / "model"
    killed = subprocess.run([sys.executable, "-c", script, str(model)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob(".repo.model.*.partial"))) == 1
    with staged_folder(model) as folder:
        (folder / "file").write_text("new")
    assert leftovers(tmp_path) == ["repo", "repo/model", "repo/model/file"]


def test_a_running_build_of_the_same_model_is_left_alone(tmp_path: Path) -> None:
    model = tmp_path / "repo" / "model"
    with staged_folder(model) as folder:
        assert remove_stale(model) == []
        assert folder.is_dir()


def test_the_temporary_folder_is_no_model_of_the_repository(tmp_path: Path) -> None:
    with staged_folder(tmp_path / "repo" / "model"):
        assert not list((tmp_path / "repo").iterdir())
