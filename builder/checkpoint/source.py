"""What a checkpoint is to the rest of the builder: a spec, named tensors read one at a time, and tokenizer files."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
from draftsmith.builder.errors import CheckpointError
from draftsmith.builder.spec.target import ModelSpec

from .tokenizer import GenerationDefaults, TokenizerFiles

Weights = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """One tensor as stored: ``shape`` is Hugging Face's (rows first), ``dtype`` the file's ("F32", "BF16", "Q4_1")."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    num_bytes: int


class WeightSource(Protocol):
    """Named tensors of one checkpoint, memory-mapped. Names and conventions are Hugging Face's for every format."""

    @property
    def format(self) -> str:
        """ "safetensors", "torch" or "gguf"."""

    @property
    def path(self) -> Path:
        """The folder or file."""

    @property
    def tensors(self) -> Mapping[str, TensorFacts]:
        """What is there, by name."""

    def read(self, name: str) -> Weights:
        """One tensor as float32 in its shape, as a new array that the caller owns.

        Raises ``CheckpointError`` when it is missing, corrupt, of an unsupported type, or holds NaN or infinity.
        """

    def close(self) -> None:
        """Unmap the files."""


@dataclass(slots=True, kw_only=True)
class Checkpoint:
    """An opened checkpoint; a context manager that unmaps its files."""

    path: Path
    format: str
    spec: ModelSpec
    weights: WeightSource
    tokenizer: TokenizerFiles
    generation: GenerationDefaults

    def close(self) -> None:
        """Unmap the files."""
        self.weights.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a Hugging Face folder or a GGUF file and check it whole: config, tensor names and shapes, tokenizer.

    No weight is read. Raises ``CheckpointError`` naming the file and what is wrong with it, ``BackendError`` when a
    package that the format needs is not installed.
    """
    from .gguf_checkpoint import open_gguf  # noqa: PLC0415 (the readers import this module)
    from .hf_folder import open_folder  # noqa: PLC0415

    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob("*.gguf"))
        if (path / "config.json").is_file() or not files:
            return open_folder(path)
        if len(files) == 1:
            return open_gguf(files[0])
        raise CheckpointError(
            "GGUF file", expected="one", found=f"{len(files)}: {', '.join(f.name for f in files[:5])}", where=str(path)
        )
    if path.is_file():
        if path.suffix == ".safetensors":
            raise CheckpointError(
                "checkpoint", expected="the folder", found=path.name, where=str(path), action="Name the folder instead."
            )
        return open_gguf(path)
    raise CheckpointError(
        "checkpoint", expected="a Hugging Face folder or a GGUF file", found="nothing", where=str(path)
    )
