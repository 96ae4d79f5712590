"""A whole float model in NumPy with a hook at every joined linear; one layer's weights in memory at a time."""

from collections.abc import Iterator, Sequence

import numpy as np

from ..spec.target import ModelSpec
from .decoder import ApplyLinear, Decoder, FloatArray, Layer, ReadTensor, TokenIds, multiply
from .decoder_math import rms_norm

__all__ = ["ApplyLinear", "Forward", "logits_in_chunks", "multiply"]


class Forward:
    """Runs sequences packed one behind the other; ``lengths``: tokens of each, M in all."""

    def __init__(self, spec: ModelSpec, read: ReadTensor, lengths: Sequence[int]) -> None:
        self._spec = spec
        self._read = read
        self._decoder = Decoder(spec, lengths)

    def embed(self, token_ids: TokenIds) -> FloatArray:
        """[M] -> [M, d]."""
        return self._read("model.embed_tokens.weight")[token_ids] * np.float32(self._spec.embed_scale)

    def layer(self, index: int, x: FloatArray, apply: ApplyLinear) -> FloatArray:
        """One decoder layer: residual [M, d] -> residual [M, d]."""
        return self._decoder.forward(Layer(self._spec, self._read, index), x, apply)[0]

    def final_norm(self, x: FloatArray) -> FloatArray:
        """What the head reads."""
        weight = self._read("model.norm.weight") + np.float32(self._spec.norm_offset)
        return rms_norm(x, weight, self._spec.norm_eps)


def logits_in_chunks(normed: FloatArray, head: FloatArray, tokens: int = 256) -> Iterator[FloatArray]:
    """``normed`` [M, d] times ``head`` [d, V], at most ``tokens`` rows at a time."""
    for start in range(0, len(normed), tokens):
        yield normed[start : start + tokens] @ head
