"""The arithmetic of a decoder layer in NumPy, each function beside its gradient. The formulas follow transformers."""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
_TANH_FACTOR = np.float32(0.7978845608028654)  # sqrt(2 / pi)
_TANH_CUBE = np.float32(0.044715)


def rms_norm(x: FloatArray, weight: FloatArray, eps: float) -> FloatArray:
    """Root-mean-square norm over the last axis."""
    return np.asarray(x * _inverse_rms(x, eps) * weight, np.float32)


def rms_norm_gradient(x: FloatArray, weight: FloatArray, eps: float, grad: FloatArray) -> FloatArray:
    """Gradient with respect to ``x`` from the gradient ``grad`` of the result."""
    inverse = _inverse_rms(x, eps)
    unit, scaled = x * inverse, grad * weight
    return np.asarray(inverse * (scaled - unit * np.mean(scaled * unit, axis=-1, keepdims=True)), np.float32)


def _inverse_rms(x: FloatArray, eps: float) -> FloatArray:
    mean = np.mean(np.square(x), axis=-1, keepdims=True, dtype=np.float32)
    return np.asarray(1 / np.sqrt(mean + np.float32(eps)), np.float32)


def activate(kind: str, x: FloatArray) -> FloatArray:
    """``silu`` or ``gelu_tanh``."""
    if kind == "silu":
        return x * _sigmoid(x)
    return np.asarray(0.5 * x * (1 + np.tanh(_TANH_FACTOR * (x + _TANH_CUBE * x**3))), np.float32)


def activation_gradient(kind: str, x: FloatArray) -> FloatArray:
    """Derivative of ``activate`` at ``x``."""
    if kind == "silu":
        gate = _sigmoid(x)
        return np.asarray(gate * (1 + x * (1 - gate)), np.float32)
    tanh = np.tanh(_TANH_FACTOR * (x + _TANH_CUBE * x**3))
    inner = _TANH_FACTOR * (1 + 3 * _TANH_CUBE * x**2)
    return np.asarray(0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * inner, np.float32)


def _sigmoid(x: FloatArray) -> FloatArray:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)), np.float32)


def rotate(x: FloatArray, cos: FloatArray, sin: FloatArray) -> FloatArray:
    """Rotary embedding of ``x`` [..., t, D]; ``cos`` and ``sin`` [t, D / 2]. Its gradient: ``rotate(g, cos, -sin)``."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def attend(
    q: FloatArray, k: FloatArray, v: FloatArray, scale: float, window: int | None
) -> tuple[FloatArray, FloatArray]:
    """Causal attention: q [H, t, D], k and v [K, t, D] -> result [H, t, D] and weights [H, t, t]."""
    group, size = len(q) // len(k), q.shape[1]
    distance = np.arange(size)[:, None] - np.arange(size)[None, :]
    hidden = (distance < 0) if window is None else (distance < 0) | (distance >= window)
    mask = np.where(hidden, np.float32(-np.inf), np.float32(0))
    weights = np.empty((len(q), size, size), np.float32)
    y = np.empty_like(q)
    for head in range(len(q)):
        scores = q[head] @ k[head // group].T * np.float32(scale) + mask
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        np.divide(scores, scores.sum(axis=-1, keepdims=True), out=weights[head])
        y[head] = weights[head] @ v[head // group]
    return y, weights


def attend_gradient(
    q: FloatArray, k: FloatArray, v: FloatArray, scale: float, *, weights: FloatArray, grad: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gradients of q, k and v from ``grad`` [H, t, D] of the result; ``weights`` as ``attend`` gave them."""
    group = len(q) // len(k)
    grad_q, grad_k, grad_v = np.empty_like(q), np.zeros_like(k), np.zeros_like(v)
    for head in range(len(q)):
        shared = head // group
        grad_v[shared] += weights[head].T @ grad[head]
        inner = grad[head] @ v[shared].T
        scores = weights[head] * (inner - np.sum(inner * weights[head], axis=-1, keepdims=True)) * np.float32(scale)
        grad_q[head] = scores @ k[shared]
        grad_k[shared] += scores.T @ q[head]
    return grad_q, grad_k, grad_v
