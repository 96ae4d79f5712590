"""The content of one model folder of a Triton repository, from an engine folder."""

import shutil
from importlib import resources
from pathlib import Path

from draftsmith.model_repo.contract.manifest import Manifest

from .config_pbtxt import render_config

CONFIG_NAME = "config.pbtxt"
VERSION_FOLDER = "1"
ADAPTER_NAME = "model.py"


def write_model_files(folder: Path, name: str, manifest: Manifest) -> None:
    """Write ``config.pbtxt`` and ``1/model.py`` around an engine that stands in ``folder/1`` already."""
    for path, content in _model_files(name, manifest).items():
        (folder / path).write_bytes(content)


def same_model_files(folder: Path, name: str, manifest: Manifest) -> bool:
    """True where ``write_model_files`` would change nothing."""
    try:
        return all((folder / path).read_bytes() == content for path, content in _model_files(name, manifest).items())
    except OSError:
        return False


def _model_files(name: str, manifest: Manifest) -> dict[str, bytes]:
    """Path in the model folder -> content."""
    template = resources.files("draftsmith.model_repo.template").joinpath(ADAPTER_NAME)
    return {
        f"{VERSION_FOLDER}/{ADAPTER_NAME}": template.read_bytes(),
        CONFIG_NAME: render_config(name, manifest, _parameters(manifest)).encode(),
    }


def copy_engine(source: Path, destination: Path, manifest: Manifest) -> None:
    """Copy the files that the manifest names, and no others."""
    destination.mkdir(parents=True, exist_ok=True)
    for entry in manifest.files:
        target = destination / entry.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / entry.name, target)


def _parameters(manifest: Manifest) -> dict[str, str]:
    threads = manifest.build.get("options", {}).get("num_threads")
    parameters = {"FORCE_CPU_ONLY_INPUT_TENSORS": "yes"}
    if threads is not None:
        parameters["num_threads"] = str(threads)
    return parameters
