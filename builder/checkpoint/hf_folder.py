"""A Hugging Face folder: config, weights (single or sharded safetensors, else ``.bin``), tokenizer, defaults."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt
from draftsmith.builder.errors import CheckpointError
from draftsmith.builder.model import read_model_spec

from .hf_names import canonical_names
from .hf_tokenizer import read_generation, read_tokenizer
from .json_file import read_json_object
from .safetensors import SafetensorsFile
from .source import Checkpoint, TensorFacts, Weights
from .strict import check_tensors
from .torch_bin import TorchFile

INDEX_FILES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
SINGLE_FILES = ("model.safetensors", "pytorch_model.bin")
ShardFile = SafetensorsFile | TorchFile


class FolderWeights:
    """``WeightSource`` over one or more files of a folder."""

    def __init__(self, folder: Path, files: Mapping[str, ShardFile], names: Mapping[str, tuple[str, str]]) -> None:
        """``names``: canonical name -> (file name, name in that file)."""
        self.path = folder
        self._files = files
        self._names = names
        self.format = "torch" if any(isinstance(f, TorchFile) for f in files.values()) else "safetensors"
        self.tensors: dict[str, TensorFacts] = {}
        for name, (file, stored) in names.items():
            facts = files[file].entries[stored].facts
            self.tensors[name] = TensorFacts(name, facts.shape, facts.dtype, facts.num_bytes)

    def read(self, name: str) -> Weights:
        """One tensor as float32; see ``WeightSource``."""
        file, stored = self._find(name)
        return self._files[file].read(stored)

    def read_integers(self, name: str) -> npt.NDArray[np.int64]:
        """One tensor of whole numbers, or of true and false as 1 and 0."""
        file, stored = self._find(name)
        return self._files[file].read_integers(stored)

    def _find(self, name: str) -> tuple[str, str]:
        if name not in self._names:
            raise CheckpointError(
                f"tensor `{name}`", expected="it in the checkpoint", found="none", where=str(self.path)
            )
        return self._names[name]

    def close(self) -> None:
        """Unmap all files."""
        for file in self._files.values():
            file.close()


def open_folder(folder: Path) -> Checkpoint:
    """Open and check a folder; see ``source.open_checkpoint``."""
    config_path = folder / "config.json"
    config = read_json_object(config_path)
    spec = read_model_spec(config, str(config_path))
    weights = open_weights(folder, multimodal="text_config" in config)
    try:
        check_tensors(spec, weights.tensors, str(folder))
        tokenizer = read_tokenizer(folder, spec.vocab_size)
        generation = read_generation(folder, config, tokenizer, spec.vocab_size)
    except BaseException:
        weights.close()
        raise
    return Checkpoint(
        path=folder,
        format=weights.format,
        spec=spec,
        weights=weights,
        tokenizer=tokenizer,
        generation=generation,
    )


def open_weights(folder: Path, *, multimodal: bool = False) -> FolderWeights:
    """Open the weight files of a folder; every file that the index names must be there."""
    shards = _find_files(folder)
    files: dict[str, ShardFile] = {}
    try:
        for file in sorted(set(shards.values())):
            files[file] = _open_file(folder / file)
        names = _locate(shards, files, folder)
        canonical = canonical_names(names, multimodal=multimodal, where=str(folder))
        return FolderWeights(folder, files, {name: names[stored] for name, stored in canonical.items()})
    except BaseException:
        for opened in files.values():
            opened.close()
        raise


def _locate(shards: Mapping[str, str], files: Mapping[str, ShardFile], folder: Path) -> dict[str, tuple[str, str]]:
    """Stored name -> (file, stored name); the index and the files must agree."""
    names: dict[str, tuple[str, str]] = {}
    for file, opened in files.items():
        for stored in opened.entries:
            expected = names[stored][0] if stored in names else shards.get(stored, file)
            if stored in names or expected != file:
                raise CheckpointError(
                    f"tensor `{stored}`", expected=f"it in {expected} alone", found=file, where=str(folder)
                )
            names[stored] = (file, stored)
    for stored, file in shards.items():
        if stored and stored not in names:
            raise CheckpointError(f"tensor `{stored}`", expected=f"it in {file}", found="none", where=str(folder))
    return names


def _find_files(folder: Path) -> dict[str, str]:
    """Tensor name -> file name; a single file is listed under the empty name."""
    for single, index in zip(SINGLE_FILES, INDEX_FILES, strict=True):
        if (folder / single).exists():
            return {"": single}
        if (folder / index).exists():
            return _read_index(folder / index)
    found = sorted(path.name for path in folder.glob("*.safetensors"))
    if len(found) == 1:
        return {"": found[0]}
    raise CheckpointError(
        "weights",
        expected=f"{' or '.join(SINGLE_FILES + INDEX_FILES)}",
        found=", ".join(found[:4]) or "none",
        where=str(folder),
    )


def _read_index(path: Path) -> dict[str, str]:
    weight_map = read_json_object(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError("weight_map", expected="tensor names and files", found="none", where=str(path))
    for name, file in weight_map.items():
        plain = (
            isinstance(file, str) and PurePosixPath(file).name == file and "\\" not in file and file not in ("", "..")
        )
        if not plain or "\0" in file:
            raise CheckpointError(
                f"file of tensor `{name}`",
                expected="a plain file name in the same folder",
                found=f"{file!r:.100}",
                where=str(path),
                action="Do not use this checkpoint: its index points outside its folder.",
            )
    for file in sorted(set(weight_map.values())):
        if not (path.parent / file).is_file():
            count = len(set(weight_map.values()))
            raise CheckpointError(
                f"shard `{file}`",
                expected=f"all {count} files of the index",
                found="it missing",
                where=str(path),
                action="Download it again.",
            )
    return weight_map


def _open_file(path: Path) -> ShardFile:
    return SafetensorsFile(path) if path.suffix == ".safetensors" else TorchFile(path)
