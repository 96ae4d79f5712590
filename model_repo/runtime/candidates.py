"""From a draft model's candidates to chances: what a guess is worth before the target has seen it.

A greedy request takes q, the model's probability. A sampled one shares its noise with the target, which takes the token
of the largest log p + noise: the model's own scores log q + noise say how far ahead the best is, so a softmax over them
stands for the chance (classes of such chances are measured while serving, see ``evidence``).
"""

import numpy as np

from .noise import gumbel, token_bits
from .sessions.base import DraftInputs, DraftOutputs, FloatArray, Int32Array, Int64Array

_U64 = np.uint64


def find_candidate_chances(inputs: DraftInputs, outputs: DraftOutputs) -> FloatArray:
    """float32 [B, N, c], 0 where there is no candidate."""
    scores = outputs.logits * inputs.inverse_temperature[..., None] - outputs.log_sum_exp[..., None]
    scores = np.where(outputs.token_ids >= 0, scores, np.float32(-np.inf))
    if inputs.noise_keys.any():
        noise = draw_noise(inputs.noise_keys, outputs.token_ids)
        perturbed = scores + noise
        perturbed -= perturbed.max(axis=-1, keepdims=True)
        weights = np.exp(perturbed)
        weights /= weights.sum(axis=-1, keepdims=True)
        drawn = (inputs.noise_keys != 0)[..., None]
        return _without_nan(np.where(drawn, weights, np.exp(scores)))
    return _without_nan(np.exp(scores))


def _without_nan(chances: FloatArray) -> FloatArray:
    return np.asarray(np.nan_to_num(chances, nan=0.0), np.float32)


def draw_noise(noise_keys: Int64Array, token_ids: Int32Array) -> FloatArray:
    """Gumbel noise of candidates [..., c] with a key [...] each; 0 where the key is 0."""
    noise = np.zeros(token_ids.shape, np.float32)
    flat_keys = noise_keys.reshape(-1)
    flat_ids = token_ids.reshape(len(flat_keys), -1)
    flat = noise.reshape(len(flat_keys), -1)
    for row, key in enumerate(flat_keys.view(_U64).tolist()):
        if key:
            flat[row] = gumbel(token_bits(key, np.maximum(flat_ids[row], 0)))
    return noise


def rank_candidates(
    logits: FloatArray, token_ids: Int32Array | None, inputs: DraftInputs, num_outputs: int
) -> tuple[Int32Array, FloatArray, FloatArray]:
    """The best of all candidates, for engines whose graph does not choose them.

    ``logits`` float32 [B, N, n] of candidates ``token_ids`` [B, N, n] (None: the whole vocabulary). Returns ids and
    logits [B, N, c], best first, and the log-sum-exp [B, N]; see ``DraftOutputs``.
    """
    scaled = logits * inputs.inverse_temperature[..., None]
    top = scaled.max(axis=-1, keepdims=True)
    log_sum_exp = (np.log(np.exp(scaled - top).sum(axis=-1)) + top[..., 0]).astype(np.float32)
    ids = np.broadcast_to(np.arange(logits.shape[-1], dtype=np.int32), logits.shape) if token_ids is None else token_ids
    scores = scaled + draw_noise(inputs.noise_keys, ids) if inputs.noise_keys.any() else scaled
    count = min(num_outputs, logits.shape[-1])
    best = np.argpartition(-scores, count - 1, axis=-1)[..., :count] if count < scores.shape[-1] else None
    if best is None:
        best = np.broadcast_to(np.arange(count), (*scores.shape[:-1], count))
    order = np.argsort(-np.take_along_axis(scores, best, axis=-1), axis=-1, kind="stable")
    best = np.take_along_axis(best, order, axis=-1)
    return (
        np.take_along_axis(ids, best, axis=-1).astype(np.int32),
        np.take_along_axis(logits, best, axis=-1),
        log_sum_exp,
    )
