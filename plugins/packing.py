"""The stored form of an 8-bit linear layer: integers in panels of 16 outputs, a scale and a sum for each output.

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


def pack_linear(weight: FloatArray) -> PackedLinear:
    """Round ``weight`` [N, K] (float32, any strides) to 8 bits, one scale an output, and lay it out in panels."""
    scales = np.abs(weight).max(axis=1) / np.float32(LARGEST_WEIGHT)
    safe = np.where(scales > 0, scales, np.float32(1))
    return pack_codes(np.rint(weight / safe[:, None]).astype(np.int8), scales)


def pack_codes(codes: npt.NDArray[np.int8], scales: FloatArray) -> PackedLinear:
    """Lay out rounded weights, ``codes`` [N, K] (-127 to 127, any strides) and ``scales`` [N]."""
    num_outputs, depth = codes.shape
    padded = np.zeros((_round_up(num_outputs, PANEL_COLUMNS), _round_up(depth, DEPTH_STEP)), np.int8)
    padded[:num_outputs, :depth] = codes
    all_scales = np.zeros(len(padded), np.float32)
    all_scales[:num_outputs] = scales
    return PackedLinear(
        num_outputs=num_outputs,
        weights=pack_panels(padded),
        scales=all_scales,
        sums=padded.sum(axis=1, dtype=np.int32),
    )


def pack_panels(integers: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """[16 P, 64 D] -> [P, 16 D, 16, 4]: the four inputs of a 32-bit lane beside each other, then 16 outputs."""
    columns, depth = integers.shape
    panels = integers.reshape(columns // PANEL_COLUMNS, PANEL_COLUMNS, depth // DEPTH_GROUP, DEPTH_GROUP)
    return np.ascontiguousarray(panels.transpose(0, 2, 1, 3))


def unpack_panels(panels: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Inverse of ``pack_panels``."""
    num_panels, groups = panels.shape[:2]
    return panels.transpose(0, 2, 1, 3).reshape(num_panels * PANEL_COLUMNS, groups * DEPTH_GROUP)


def _round_up(count: int, step: int) -> int:
    return -(-count // step) * step
