"""Rounds a weight matrix to INT8 column by column, each rounding error compensated in the channels that are still open.

The closed form is that of GPTQ (arXiv 2210.17323): with the second moments of the inputs, the error that one channel's
rounding makes in the outputs is cancelled as far as possible by the others. It halves the KL of plain rounding here.
"""

import numpy as np
import numpy.typing as npt

from .codes import MAX_CODE, Codes, column_scales

FloatArray = npt.NDArray[np.float32]
DAMPING = 0.01
_BLOCK = 64
_COLUMNS = 8192


def compensate_rounding(
    weight: FloatArray, moment: npt.NDArray[np.float64], factors: FloatArray | None = None
) -> tuple[Codes, FloatArray]:
    """Codes [d_in, d_out] and scales [d_out] of ``weight``; ``moment`` [d_in, d_in]: mean of x x^T over inputs.

    ``factors`` [d_in]: inputs will come divided by them, so the weights are multiplied before they are rounded.
    """
    if factors is not None:
        exact = factors.astype(np.float64)
        moment = moment / np.outer(exact, exact)
    order, upper = _factor(moment)
    codes = np.empty(weight.shape, np.int8)
    scales = np.empty(weight.shape[1], np.float32)
    for start in range(0, weight.shape[1], _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        block = weight[order, columns]
        if factors is not None:
            block *= factors[order, None]
        scales[columns] = column_scales(block)
        codes[order, columns] = _round_block(block, scales[columns], upper)
    return codes, scales


def _factor(moment: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """Order of channels (strongest first) and the upper Cholesky factor of the inverse moment in that order."""
    damped = np.array(moment, np.float64)
    diagonal = np.diagonal(damped).copy()
    mean = float(diagonal.mean())
    damped[np.diag_indices(len(damped))] += DAMPING * mean if mean > 0 else 1.0
    order = np.argsort(-diagonal, kind="stable")
    # The moment is R R^T with R upper triangular (a Cholesky factor read backwards): its inverse is U^T U, U = 1 / R.
    backwards = order[::-1]
    lower = np.linalg.cholesky(damped[np.ix_(backwards, backwards)])
    return order, _invert_upper(np.ascontiguousarray(lower[::-1, ::-1], np.float32))


def _invert_upper(matrix: FloatArray) -> FloatArray:
    """Inverse of an upper triangular matrix by halves."""
    size = len(matrix)
    if size <= _BLOCK:
        return np.triu(np.linalg.inv(matrix))
    half = size // 2
    inverse = np.zeros_like(matrix)
    inverse[:half, :half] = _invert_upper(matrix[:half, :half])
    inverse[half:, half:] = _invert_upper(matrix[half:, half:])
    inverse[:half, half:] = -inverse[:half, :half] @ matrix[:half, half:] @ inverse[half:, half:]
    return inverse


def _round_block(weight: FloatArray, scales: FloatArray, upper: FloatArray) -> Codes:
    """Codes of some columns; channels in the order of ``upper``. ``weight`` is used up."""
    rest = np.ascontiguousarray(weight / scales)
    codes = np.empty(rest.shape, np.int8)
    size = len(rest)
    for start in range(0, size, _BLOCK):
        end = min(start + _BLOCK, size)
        errors = np.empty((end - start, rest.shape[1]), np.float32)
        for row in range(start, end):
            rounded = np.clip(np.rint(rest[row]), -MAX_CODE, MAX_CODE)
            codes[row] = rounded
            error = errors[row - start]
            np.divide(rest[row] - rounded, upper[row, row], out=error)
            if row + 1 < end:
                rest[row + 1 : end] -= upper[row, row + 1 : end, None] * error
        rest[end:] -= upper[start:end, end:].T @ errors
    return codes
