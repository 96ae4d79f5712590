"""``.bin`` weights: read where torch is, never run."""

import json
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.errors import BackendError, CheckpointError

from tests.tiny_models import tiny_config, tiny_weights, write_tiny_checkpoint


class Payload:
    """Unpickles into a command that leaves a file behind."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def write_bin_folder(folder: Path) -> Path:
    write_tiny_checkpoint(folder, "llama")
    (folder / "model.safetensors").unlink()
    return folder


def test_bin_weights_equal_what_was_saved(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    folder = write_bin_folder(tmp_path)
    arrays = tiny_weights(tiny_config("llama"))
    tensors = {name: torch.from_numpy(values).to(torch.bfloat16) for name, values in arrays.items()}
    torch.save(tensors, folder / "pytorch_model.bin")
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.format == "torch"
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(checkpoint.weights.read(name), tensor.float().numpy())
            assert checkpoint.weights.tensors[name].dtype == "BF16"


def test_sharded_bin_weights_are_found_through_their_index(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    folder = write_bin_folder(tmp_path)
    arrays = tiny_weights(tiny_config("llama"))
    weight_map = {name: f"pytorch_model-{i % 2 + 1:05d}-of-00002.bin" for i, name in enumerate(arrays)}
    for file in set(weight_map.values()):
        part = {name: torch.from_numpy(arrays[name]) for name in arrays if weight_map[name] == file}
        torch.save(part, folder / file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with open_checkpoint(folder) as checkpoint:
        np.testing.assert_array_equal(checkpoint.weights.read("model.norm.weight"), arrays["model.norm.weight"])


@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_pickle_payload_is_refused_and_not_run(tmp_path: Path, how: str) -> None:
    torch = pytest.importorskip("torch")
    folder, mark = write_bin_folder(tmp_path), tmp_path / "mark"
    values = {"model.norm.weight": Payload(mark)}
    if how == "torch":
        torch.save(values, folder / "pytorch_model.bin")
    else:
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(values))
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin: expected "):
        open_checkpoint(folder)
    assert not mark.exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04nonsense", b"\x80\x02}q\x00."])
def test_corrupt_bin_files_are_refused(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("torch")
    folder = write_bin_folder(tmp_path)
    (folder / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(CheckpointError):
        open_checkpoint(folder)


def test_without_torch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_bin_folder(tmp_path)
    (folder / "pytorch_model.bin").write_bytes(b"anything")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BackendError, match=r"package `torch`.*pip install 'draftsmith\[train\]'"):
        open_checkpoint(folder)
