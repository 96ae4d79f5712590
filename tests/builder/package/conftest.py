"""A small manifest whose files exist."""

from pathlib import Path

import pytest
from draftsmith.builder.package.manifest import describe_files
from draftsmith.builder.progress import Silent
from draftsmith.model_repo.contract.manifest import Manifest

from tests.tiny_manifest import tiny_manifest


@pytest.fixture
def engine_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "target.onnx").write_bytes(b"graph")
    (folder / "tokenizer.json").write_bytes(b"{}")
    return folder


@pytest.fixture
def manifest(engine_folder: Path) -> Manifest:
    return tiny_manifest(files=describe_files(engine_folder, ["target.onnx", "tokenizer.json"], Silent()))
