"""Same inputs, same fingerprint; anything that changes the engine changes it."""

from pathlib import Path

import pytest
from draftsmith.builder.package import fingerprint
from draftsmith.builder.package.fingerprint import hash_checkpoint, hash_options
from draftsmith.builder.progress import Silent


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text(name)
    return tmp_path


def test_content_and_names_count_and_times_and_notes_do_not(checkpoint: Path) -> None:
    before = hash_checkpoint(checkpoint, Silent())
    (checkpoint / "README.md").write_text("x")
    (checkpoint / "config.json").touch()
    assert hash_checkpoint(checkpoint, Silent()) == before
    (checkpoint / "config.json").write_text("other")
    assert hash_checkpoint(checkpoint, Silent()) != before


def test_options_count_in_any_order() -> None:
    first = hash_options("c", {"a": 1, "b": 2})
    assert hash_options("c", {"b": 2, "a": 1}) == first
    assert hash_options("c", {"a": 1, "b": 3}) != first
    assert hash_options("d", {"a": 1, "b": 2}) != first


def test_cpu_kernels_count_and_kernels_of_the_gpu_do_not() -> None:
    hashed = {"/".join(file.parts[-3:]) for file in fingerprint._code_files()}
    assert {"csrc/cpu/kernels.h", "csrc/cpu/speculative.c"} <= hashed
    assert {Path(name).name for name in hashed} >= {"packing.py", "cpu_library.py", "draft_graph.py"}
    assert not [name for name in hashed if name.startswith(("csrc/kernels", "csrc/tensorrt", "plugins/reference"))]
