"""INT8 weights: one scale an output channel, codes from -127 to 127, rounded to nearest."""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int8]
MAX_CODE = 127
_BLOCK_BYTES = 16 << 20


def column_scales(weight: FloatArray) -> FloatArray:
    """[d_in, d_out] -> float32 [d_out]: the largest magnitude of each output channel over 127; 1 for empty channels."""
    scales = np.maximum(weight.max(axis=0), -weight.min(axis=0)) / np.float32(MAX_CODE)
    scales[scales == 0] = 1
    return np.asarray(scales, np.float32)


def round_columns(weight: FloatArray, scales: FloatArray) -> Codes:
    """Codes [d_in, d_out] of ``weight`` in steps of ``scales`` [d_out], in the memory order of ``weight``."""
    codes = np.empty_like(weight, np.int8)
    columns = max(1, _BLOCK_BYTES // (4 * weight.shape[0]))
    for start in range(0, weight.shape[1], columns):
        block = slice(start, start + columns)
        rounded = np.rint(weight[:, block] / scales[block])
        codes[:, block] = np.clip(rounded, -MAX_CODE, MAX_CODE)
    return codes


def restore(codes: Codes, scales: FloatArray) -> FloatArray:
    """The float weights that codes stand for."""
    return codes * scales
