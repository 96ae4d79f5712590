"""The stored forms of 8-bit linear layers: integers in panels of 16 outputs, a scale and a sum for each output.

A vocabulary's matrix is kept row-major instead: embeddings and candidates are looked up by row.
``y[m, n] = float32(sum_k q[m, k] w[n, k]) * row_scale[m] * scale[n] + bias[n]``: see ``reference.quantized_linear``.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
PANEL_COLUMNS = 16
DEPTH_GROUP = 4
DEPTH_STEP = 64
LARGEST_WEIGHT = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedLinear:
    """A linear layer of K inputs and N outputs; outputs are padded to 16 and inputs to 64 with zeros."""

    num_outputs: int
    weights: npt.NDArray[np.int8]  # [ceil(N / 16), ceil(K / 64) * 16, 16, 4]
    scales: FloatArray  # [ceil(N / 16) * 16]
    sums: npt.NDArray[np.int32]  # [ceil(N / 16) * 16], of an output's integer weights


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedVocabulary:
    """The embedding or head of V tokens, a row each; rows are padded to 16 and inputs to 64 with zeros."""

    num_outputs: int  # V
    weights: npt.NDArray[np.int8]  # [ceil(V / 16) * 16, ceil(K / 64) * 64]
    scales: FloatArray  # [ceil(V / 16) * 16]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRanking:
    """The ranking's V (or G) rows of r numbers, in panels as ``PackedLinear`` but padded to 4 inputs only."""

    num_outputs: int
    weights: npt.NDArray[np.int8]  # [ceil(V / 16), ceil(r / 4), 16, 4]
    scales: FloatArray  # [ceil(V / 16) * 16]


def pack_linear(weight: FloatArray) -> PackedLinear:
    """Round ``weight`` [N, K] (float32, any strides) to 8 bits, one scale an output, and lay it out in panels."""
    return pack_codes(*round_rows(weight))


def pack_vocabulary(weight: FloatArray) -> PackedVocabulary:
    """Round ``weight`` [V, K] (float32, any strides) to 8 bits, one scale a row."""
    return pack_vocabulary_codes(*round_rows(weight))


def pack_ranking(weight: FloatArray) -> PackedRanking:
    """Round ``weight`` [V, r] (float32, any strides) to 8 bits, one scale a row, and lay it out in panels."""
    codes, scales = round_rows(weight)
    padded, all_scales = _pad(codes, scales, DEPTH_GROUP)
    return PackedRanking(num_outputs=len(codes), weights=pack_panels(padded), scales=all_scales)


def round_rows(weight: FloatArray) -> tuple[npt.NDArray[np.int8], FloatArray]:
    """Codes [N, K] and scales [N]: every row of ``weight`` [N, K] to the nearest of 255 steps."""
    scales = np.abs(weight).max(axis=1) / np.float32(LARGEST_WEIGHT)
    safe = np.where(scales > 0, scales, np.float32(1))
    return np.rint(weight / safe[:, None]).astype(np.int8), scales


def pack_vocabulary_codes(codes: npt.NDArray[np.int8], scales: FloatArray) -> PackedVocabulary:
    """Lay out rounded rows, ``codes`` [V, K] (-127 to 127, any strides) and ``scales`` [V]."""
    padded, all_scales = _pad(codes, scales, DEPTH_STEP)
    return PackedVocabulary(num_outputs=len(codes), weights=padded, scales=all_scales)


def pack_codes(codes: npt.NDArray[np.int8], scales: FloatArray) -> PackedLinear:
    """Lay out rounded weights, ``codes`` [N, K] (-127 to 127, any strides) and ``scales`` [N]."""
    padded, all_scales = _pad(codes, scales, DEPTH_STEP)
    return PackedLinear(
        num_outputs=len(codes),
        weights=pack_panels(padded),
        scales=all_scales,
        sums=padded.sum(axis=1, dtype=np.int32),
    )


def pack_panels(integers: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """[16 P, 4 D] -> [P, D, 16, 4]: the four inputs of a 32-bit lane beside each other, then 16 outputs."""
    columns, depth = integers.shape
    panels = integers.reshape(columns // PANEL_COLUMNS, PANEL_COLUMNS, depth // DEPTH_GROUP, DEPTH_GROUP)
    return np.ascontiguousarray(panels.transpose(0, 2, 1, 3))


def unpack_panels(panels: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Inverse of ``pack_panels``."""
    num_panels, groups = panels.shape[:2]
    return panels.transpose(0, 2, 1, 3).reshape(num_panels * PANEL_COLUMNS, groups * DEPTH_GROUP)


def _pad(codes: npt.NDArray[np.int8], scales: FloatArray, depth_step: int) -> tuple[npt.NDArray[np.int8], FloatArray]:
    """Zeros behind rows and inputs."""
    num_outputs, depth = codes.shape
    padded = np.zeros((_round_up(num_outputs, PANEL_COLUMNS), _round_up(depth, depth_step)), np.int8)
    padded[:num_outputs, :depth] = codes
    all_scales = np.zeros(len(padded), np.float32)
    all_scales[:num_outputs] = scales
    return padded, all_scales


def _round_up(count: int, step: int) -> int:
    return -(-count // step) * step
