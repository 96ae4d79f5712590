"""``engine.json`` on the disk: what is written is read back, what is wrong is named."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from draftsmith.builder.package.manifest import check_files, hash_file, read_manifest, write_manifest
from draftsmith.builder.progress import Silent
from draftsmith.model_repo.contract.errors import ManifestError
from draftsmith.model_repo.contract.manifest import EngineFile, Manifest


def test_a_written_manifest_is_read_back(engine_folder: Path, manifest: Manifest) -> None:
    write_manifest(engine_folder, manifest)
    assert read_manifest(engine_folder) == manifest


def test_the_checksum_is_sha256(engine_folder: Path) -> None:
    assert hash_file(engine_folder / "target.onnx", Silent()) == hashlib.sha256(b"graph").hexdigest()


def test_a_manifest_that_could_not_be_read_back_is_not_written(engine_folder: Path, manifest: Manifest) -> None:
    escaping = EngineFile(name="../target.onnx", num_bytes=1, sha256="0" * 64)
    with pytest.raises(ManifestError, match="inside the package"):
        write_manifest(engine_folder, replace(manifest, files=[*manifest.files, escaping]))
    assert not (engine_folder / "engine.json").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "expected a file, found none"), (b"{", "expected JSON"), (b"[]", "expected an object")],
)
def test_a_missing_or_broken_manifest_is_named(engine_folder: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (engine_folder / "engine.json").write_bytes(content)
    with pytest.raises(ManifestError, match=f"engine.json: {message}"):
        read_manifest(engine_folder)


def test_intact_files_pass(engine_folder: Path, manifest: Manifest) -> None:
    check_files(engine_folder, manifest, Silent())


def test_a_missing_file_is_named(engine_folder: Path, manifest: Manifest) -> None:
    (engine_folder / "target.onnx").unlink()
    with pytest.raises(ManifestError, match=r"target\.onnx: expected a file, found none"):
        check_files(engine_folder, manifest)


def test_a_cut_file_is_named_with_both_sizes(engine_folder: Path, manifest: Manifest) -> None:
    (engine_folder / "target.onnx").write_bytes(b"gra")
    with pytest.raises(ManifestError, match=r"target\.onnx: expected 5 bytes, found 3"):
        check_files(engine_folder, manifest)


def test_a_changed_file_of_the_same_size_is_named(engine_folder: Path, manifest: Manifest) -> None:
    (engine_folder / "target.onnx").write_bytes(b"grapH")
    with pytest.raises(ManifestError, match=r"target\.onnx: expected SHA-256"):
        check_files(engine_folder, manifest, Silent())
