"""One ``pytorch_model*.bin`` file, read through torch's restricted unpickler: no code in it is ever run."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from draftsmith.builder.errors import BackendError, CheckpointError

from .safetensors import Entry
from .source import TensorFacts
from .values import Weights, check_finite

DTYPES = {"torch.float64": "F64", "torch.float32": "F32", "torch.float16": "F16", "torch.bfloat16": "BF16"}
INTEGER_TYPES = ("torch.int64", "torch.int32", "torch.int16", "torch.int8", "torch.uint8", "torch.bool")


class TorchFile:
    """A zip-format torch file, memory-mapped by torch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tensors = _load(path)
        self.entries = {name: Entry(_facts(name, t), 0) for name, t in self._tensors.items()}

    def read(self, name: str) -> Weights:
        """One tensor as float32; ``CheckpointError`` for types that are no weights, NaN and infinity."""
        facts = self.entries[name].facts
        if facts.dtype not in DTYPES.values():
            raise CheckpointError(
                f"tensor `{name}`",
                expected=", ".join(DTYPES.values()),
                found=facts.dtype,
                where=str(self.path),
                action="This type is not supported.",
            )
        try:
            values = np.array(self._tensors[name].float().numpy(), dtype=np.float32, order="C", copy=True)
        except RuntimeError as error:
            raise CheckpointError(f"tensor `{name}`", found=str(error)[:200], where=str(self.path)) from error
        return check_finite(values, name, str(self.path))

    def read_integers(self, name: str) -> npt.NDArray[np.int64]:
        """One tensor of whole numbers (or of true and false, as 1 and 0); ``CheckpointError`` for other types."""
        dtype = self.entries[name].facts.dtype
        if dtype not in INTEGER_TYPES:
            expected = ", ".join(INTEGER_TYPES)
            raise CheckpointError(f"tensor `{name}`", expected=expected, found=dtype, where=str(self.path))
        return np.array(self._tensors[name].long().numpy(), dtype=np.int64, order="C", copy=True)

    def close(self) -> None:
        """Drop the mapping."""
        self._tensors = {}


def _load(path: Path) -> dict[str, Any]:
    try:
        import torch  # noqa: PLC0415 (only this format needs it)
    except ImportError as error:
        raise BackendError(
            "package `torch`",
            expected="it installed to read .bin weights",
            where=str(path),
            action="Run `pip install 'draftsmith[train]'`, or use a checkpoint with safetensors weights.",
        ) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            path.name,
            expected="tensors alone",
            found="a pickle that wants to run code or is corrupt",
            where=str(path),
            action="It was not run. Use a checkpoint with safetensors weights.",
        ) from error
    except Exception as error:  # torch raises many kinds for corrupt files
        raise CheckpointError(
            path.name, expected="a torch zip file", found=str(error)[:200], where=str(path)
        ) from error
    if not isinstance(values, dict) or not all(isinstance(t, torch.Tensor) for t in values.values()):
        raise CheckpointError(path.name, expected="names and tensors", found="other objects", where=str(path))
    return {str(name): tensor.detach() for name, tensor in values.items()}


def _facts(name: str, tensor: Any) -> TensorFacts:
    dtype = DTYPES.get(str(tensor.dtype), str(tensor.dtype))
    return TensorFacts(name, tuple(tensor.shape), dtype, tensor.numel() * tensor.element_size())
