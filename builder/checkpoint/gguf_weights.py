"""The tensors of a GGUF file as Hugging Face's: names, row order of q and k, Gemma's norms, float32 values."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from draftsmith.builder.errors import BackendError, CheckpointError
from draftsmith.builder.spec.target import ModelSpec

from .gguf_header import GgufHeader, GgufTensor
from .gguf_names import hf_name
from .mapped_file import MappedFile
from .source import TensorFacts, Weights
from .values import CHUNK_VALUES, check_finite, read_float32

PLAIN = ("F32", "F16", "BF16", "F64")
ROTATED = re.compile(r"\.self_attn\.(q|k)_proj\.(weight|bias)$")


def load_ggml() -> Any:
    """The ``gguf`` package: ggml's type numbers, block sizes and de-quantisation."""
    try:
        import gguf  # noqa: PLC0415 (optional extra)
    except ImportError as error:
        raise BackendError(
            "package `gguf`", expected="it installed to read GGUF", action="Run `pip install 'draftsmith[builder]'`."
        ) from error
    return gguf


def block_sizes() -> dict[int, tuple[int, int]]:
    """ggml type number -> (elements, bytes) of a block."""
    return {int(kind): (int(n), int(b)) for kind, (n, b) in load_ggml().GGML_QUANT_SIZES.items()}


class GgufWeights:
    """``WeightSource`` over one GGUF file."""

    format = "gguf"

    def __init__(self, file: MappedFile, header: GgufHeader, spec: ModelSpec, skipped: frozenset[str]) -> None:
        """``skipped``: stored names that are no weights of the model (rope factors)."""
        self._file = file
        self._spec = spec
        self._ggml = load_ggml()
        self._stored: dict[str, GgufTensor] = {}
        self.tensors: dict[str, TensorFacts] = {}
        for tensor in header.tensors.values():
            if tensor.name in skipped:
                continue
            name = hf_name(tensor.name, spec.architecture)
            self._stored[name] = tensor
            kind = self._ggml.GGMLQuantizationType(tensor.kind).name
            self.tensors[name] = TensorFacts(name, tensor.shape, kind, tensor.num_bytes)
        self._check_types()

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def read(self, name: str) -> Weights:
        """One tensor as float32; see ``WeightSource``."""
        if name not in self._stored:
            raise CheckpointError(
                f"tensor `{name}`", expected="it in the checkpoint", found="none", where=str(self.path)
            )
        values = read_values(self._file, self._stored[name], self._ggml)
        check_finite(values, name, str(self.path))
        if self._spec.architecture == "llama" and (match := ROTATED.search(name)):
            heads = self._spec.num_heads if match[1] == "q" else self._spec.num_kv_heads
            return interleaved_to_halves(values, heads)
        if self._spec.norm_offset and name.endswith("norm.weight"):
            values -= np.float32(self._spec.norm_offset)
        return values

    def close(self) -> None:
        """Unmap the file."""
        self._file.close()

    def _check_types(self) -> None:
        """Refuse at opening what could not be de-quantised later, by trying one block of zeros of each type."""
        first: Mapping[str, TensorFacts] = {facts.dtype: facts for facts in reversed(self.tensors.values())}
        for dtype, facts in first.items():
            if dtype in PLAIN:
                continue
            kind = self._ggml.GGMLQuantizationType[dtype]
            _, num_bytes = self._ggml.GGML_QUANT_SIZES[kind]
            try:
                self._ggml.dequantize(np.zeros((1, num_bytes), np.uint8), kind)
            except Exception as error:
                raise CheckpointError(
                    f"tensor `{facts.name}`",
                    expected="a type that can be de-quantised",
                    found=dtype,
                    where=str(self.path),
                    action="Use another quantisation, for example Q8_0.",
                ) from error


def read_values(file: MappedFile, tensor: GgufTensor, ggml: Any) -> Weights:
    """The values as stored, float32 in ``tensor.shape``, de-quantised some rows at a time."""
    kind = ggml.GGMLQuantizationType(tensor.kind)
    if kind.name in PLAIN:
        return read_float32(file, tensor.begin, kind.name, tensor.shape)
    columns = tensor.shape[-1]
    num_rows = int(np.prod(tensor.shape[:-1], dtype=np.int64))
    row_bytes = tensor.num_bytes // num_rows
    values = np.empty((num_rows, columns), np.float32)
    step = max(1, CHUNK_VALUES // columns)
    with np.errstate(all="ignore"):  # corrupt scales may overflow; check_finite tells
        for row in range(0, num_rows, step):
            count = min(step, num_rows - row)
            begin = tensor.begin + row * row_bytes
            raw = file.view(begin, count * row_bytes).reshape(count, row_bytes)
            values[row : row + count] = ggml.dequantize(raw, kind)
            file.forget(begin, count * row_bytes)
    return values.reshape(tensor.shape)


def interleaved_to_halves(values: Weights, num_heads: int) -> Weights:
    """Rows of q or k from ggml's rotary order (pairs side by side) to Hugging Face's (first halves, second halves).

    values: float32 [num_heads * Dh, ...] -> the same shape. Inverse of the converter's ``permute``.
    """
    rows = values.shape[0]
    pairs = values.reshape(num_heads, rows // num_heads // 2, 2, *values.shape[1:])  # [H, Dh/2, 2, ...]
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)
