"""The best ranking of a given rank without training: a truncated singular value decomposition, weighted by the data.

The scores of a hidden state h are W_vocab W_down h. Their mean-square distance from the logits U h, over hidden states
of second moment C, is ||(U - W_vocab W_down) C^(1/2)||^2, which the truncated decomposition of U C^(1/2) makes smallest
(Eckart and Young; reduced-rank regression). Only d x d matrices are decomposed, so the vocabulary may be large.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
Matrix = npt.NDArray[np.float64]
BLOCK_ROWS = 8192
"""Rows of the head in memory at a time, as float32."""
RIDGE = 1e-6
"""Share of C's mean eigenvalue that is added to every direction, so that none is infinitely cheap."""


def fit_ranking(
    head: npt.ArrayLike, moment: npt.ArrayLike, rank: int, *, weights: npt.ArrayLike | None = None, ridge: float = RIDGE
) -> tuple[FloatArray, FloatArray]:
    """W_down float32 [r, d] and W_vocab float32 [V, r] with the scores W_vocab (W_down h) nearest to the logits.

    ``head`` U [V, d], any float type, read in blocks of rows; ``moment`` C [d, d]: mean of h h^T over the hidden states
    that the head reads (``second_moment``). ``weights`` [V]: how much a token's squared error counts, None for all
    alike. Rows of W_down are orthonormal in C. Raises ``ValueError`` for shapes that do not fit, NaN, infinity, and a
    moment that is zero or has negative eigenvalues.
    """
    head = np.asarray(head)
    root, inverse = _roots(np.asarray(moment, np.float64), ridge)
    if head.ndim != 2 or head.shape[1] != len(root):
        raise ValueError(f"head: expected [V, {len(root)}], found {list(head.shape)}")
    if not 1 <= rank <= len(root):
        raise ValueError(f"rank: expected 1 to {len(root)}, found {rank}")
    gram = root @ head_gram(head, weights) @ root
    if not np.isfinite(gram).all():
        raise ValueError("head: expected finite numbers, found NaN or infinity")
    right = np.linalg.eigh(gram)[1][:, ::-1][:, :rank]  # [d, r], largest first
    left = np.asarray(root @ right, np.float32)
    vocabulary = np.empty((len(head), rank), np.float32)
    for start, rows in _blocks(head):
        vocabulary[start : start + len(rows)] = rows @ left
    return np.asarray(right.T @ inverse, np.float32), vocabulary


def head_gram(head: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Matrix:
    """U^T diag(weights) U, float64 [d, d], of ``head`` U [V, d]."""
    head = np.asarray(head)
    scale = None if weights is None else np.sqrt(np.asarray(weights, np.float64)).astype(np.float32)
    if scale is not None and (scale.shape != head.shape[:1] or not np.isfinite(scale).all()):
        raise ValueError(f"weights: expected [{len(head)}] numbers from 0 on, found {list(scale.shape)}")
    gram = np.zeros((head.shape[1], head.shape[1]))
    for start, rows in _blocks(head):
        scaled = rows if scale is None else rows * scale[start : start + len(rows), None]
        gram += scaled.T @ scaled
    return gram


def second_moment(hidden: npt.ArrayLike) -> Matrix:
    """Mean of h h^T, float64 [d, d], over ``hidden`` [M, d]."""
    return head_gram(hidden) / max(1, len(np.asarray(hidden)))


def _blocks(matrix: npt.NDArray[np.generic]) -> Iterator[tuple[int, FloatArray]]:
    """Rows of ``matrix`` as float32, a block at a time, each with the index of its first."""
    for start in range(0, len(matrix), BLOCK_ROWS):
        yield start, np.asarray(matrix[start : start + BLOCK_ROWS], np.float32)


def _roots(moment: Matrix, ridge: float) -> tuple[Matrix, Matrix]:
    """(C + ridge)^(1/2) and its inverse; what rounding made negative counts as zero."""
    if moment.ndim != 2 or moment.shape[0] != moment.shape[1]:
        raise ValueError(f"moment: expected a square matrix, found {list(moment.shape)}")
    if not np.isfinite(moment).all():
        raise ValueError("moment: expected finite numbers, found NaN or infinity")
    values, vectors = np.linalg.eigh((moment + moment.T) / 2)
    largest = float(values[-1])
    if largest <= 0 or values[0] < -1e-4 * largest:
        raise ValueError(f"moment: expected eigenvalues from 0 on, found {values[0]:.3g} to {largest:.3g}")
    values = np.maximum(values, 0)
    values += max(ridge * float(values.mean()), 1e-12 * largest)
    root = np.sqrt(values)
    return (vectors * root) @ vectors.T, (vectors / root) @ vectors.T
