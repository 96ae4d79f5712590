"""A draft's stored tensors by our names: shapes at once, values one at a time, INT8 codes restored."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..checkpoint.hf_folder import FolderWeights, open_weights
from ..errors import CheckpointError
from .tensor_names import CODES, LAYER_PREFIXES, SCALES, translate_names

FloatArray = npt.NDArray[np.float32]


class DraftTensors:
    """``DraftWeights`` over a folder's files. ``shapes``: what is there, by our names, ``X.codes`` counted as X."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._weights: FolderWeights = open_weights(folder)
        self._aliases: dict[str, str] = {}
        self._constants: dict[str, FloatArray] = {}
        try:
            self._names, self.harmless = translate_names(self._weights.tensors, str(folder))
            self.shapes = self._read_shapes()
        except BaseException:
            self.close()
            raise

    @property
    def layer_prefix(self) -> str:
        """``midlayer.`` or ``layers.0.``, whichever the file has."""
        stored = self._weights.tensors
        return next((p for p in LAYER_PREFIXES if any(n.removeprefix("model.").startswith(p) for n in stored)), "")

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(facts.num_bytes for facts in self._weights.tensors.values())

    @property
    def types(self) -> dict[str, int]:
        """Bytes by stored type."""
        types: dict[str, int] = {}
        for facts in self._weights.tensors.values():
            types[facts.dtype] = types.get(facts.dtype, 0) + facts.num_bytes
        return types

    def stored_name(self, name: str) -> str:
        """What the file calls one of ours, for messages."""
        return self._names.get(name) or self._names.get(name + CODES) or name

    def read(self, name: str) -> FloatArray:
        """One tensor as float32, a new array; ``CheckpointError`` where it is missing, NaN or infinite."""
        if name in self._constants:
            return self._constants[name].copy()
        name = self._aliases.get(name, name)
        if name + CODES in self._names:
            codes = self._weights.read_integers(self._names[name + CODES]).astype(np.float32)
            return codes * self._weights.read(self._names[name + SCALES])[:, None]
        return self._weights.read(self._names.get(name, name))

    def read_integers(self, name: str) -> npt.NDArray[np.int64] | None:
        """A vocabulary map by our name, None where there is none."""
        stored = self._names.get(name)
        return None if stored is None else self._weights.read_integers(stored)

    def share(self, name: str, other: str) -> None:
        """Let ``name`` read ``other`` from now on."""
        self._aliases[name] = other

    def set_unused(self, name: str, values: FloatArray) -> None:
        """Values for a tensor that the spec never applies and the file leaves out."""
        self._constants[name] = values

    def close(self) -> None:
        """Unmap the files."""
        self._weights.close()

    def _read_shapes(self) -> dict[str, tuple[int, ...]]:
        facts = self._weights.tensors
        shapes = {name: facts[stored].shape for name, stored in self._names.items()}
        for name in [n for n in shapes if n.endswith((CODES, SCALES))]:
            plain = name.removesuffix(CODES).removesuffix(SCALES)
            codes, scales = shapes.get(plain + CODES), shapes.get(plain + SCALES)
            stored = self._names[name]
            if codes is None or scales is None or plain in self._names:
                expected = f"{CODES} and {SCALES} together, without the plain tensor"
                raise CheckpointError(f"tensor `{stored}`", expected=expected, where=str(self.path))
            if len(codes) != 2 or scales != codes[:1]:
                expected = f"a scale for each of {codes[0] if codes else 0} rows"
                raise CheckpointError(
                    f"tensor `{stored}`", expected=expected, found=f"shape {list(scales)}", where=str(self.path)
                )
            if facts[self._names[plain + CODES]].dtype not in ("I8", "torch.int8"):
                found = facts[self._names[plain + CODES]].dtype
                raise CheckpointError(
                    f"tensor `{self._names[plain + CODES]}`", expected="I8", found=found, where=str(self.path)
                )
        coded = {n.removesuffix(CODES): s for n, s in shapes.items() if n.endswith(CODES)}
        return {n: s for n, s in shapes.items() if not n.endswith((CODES, SCALES))} | coded
