"""Streams a decoder over calibration text, layer by layer, forwards and back, and shows every linear as it goes by.

Going back, a layer's inputs are computed again from the residual that was kept, so that one layer's weights and values
are in memory at a time. Gradients are those of the log-probability of tokens that the model itself draws.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ..checkpoint.source import Checkpoint
from ..progress import Progress, Stage
from .decoder import KINDS, Decoder, Layer, LinearGradients, LinearValues, multiply
from .decoder_math import rms_norm, rms_norm_gradient

FloatArray = npt.NDArray[np.float32]
TokenIds = npt.NDArray[np.int64]
Moment = npt.NDArray[np.float64]
GROUP_TOKENS = 768
"""Tokens that run together; gradients are taken on the first group."""
HEAD_TOKENS = 96
"""Tokens whose gradients over the vocabulary are kept."""


class SeenLinear:
    """One linear on the calibration text.

    ``channel_max`` [d_in], ``moment`` [d_in, d_in] (mean of x x^T) over all text; ``x`` and ``gradients`` of a sample,
    the first of ``inputs``; ``other_max``: largest magnitudes without the sample.
    """

    def __init__(
        self,
        weight: FloatArray,
        inputs: Sequence[FloatArray],
        values: FloatArray,
        gradients: LinearGradients,
    ) -> None:
        self.weight = weight
        self.x = values
        self.gradients = gradients
        maxima = [np.abs(x).max(axis=0) for x in inputs]
        self.channel_max: FloatArray = np.max(maxima, axis=0)
        self.other_max: FloatArray = np.max(maxima[1:] or maxima, axis=0)
        total = sum(len(x) for x in inputs)
        moment: Moment = np.zeros((len(weight), len(weight)))
        for x in inputs:
            moment += x.T @ x
        self.moment = moment / total


ShowLayer = Callable[[int, dict[str, SeenLinear]], None]
"""Takes a layer's linears by kind."""


class Calibration:
    """The text in groups, and the residuals that enter each layer."""

    def __init__(self, checkpoint: Checkpoint, sequences: Sequence[TokenIds], seed: int = 0) -> None:
        self._spec = checkpoint.spec
        self._read = checkpoint.weights.read
        groups = list(group_sequences(sequences, GROUP_TOKENS))
        self._decoders = [Decoder(self._spec, [len(s) for s in group]) for group in groups]
        self._ids = [np.concatenate(group) for group in groups]
        self._residuals: list[list[FloatArray]] = []
        self._random = np.random.default_rng(seed)
        self.beyond_half: list[str] = []

    @property
    def num_tokens(self) -> int:
        """M."""
        return sum(map(len, self._ids))

    def run(self, show_head: Callable[[SeenLinear], None], show_layer: ShowLayer, progress: Progress) -> None:
        """Forwards, then from the head back to the first layer, showing each part once."""
        with progress.stage("calibrate", total=2 * self._spec.num_layers, unit="layers") as stage:
            hidden = self._forward(stage)
            grad = self._head(hidden, show_head)
            self._backward(grad, show_layer, stage)
            stage.note(f"{self.num_tokens:,} tokens")

    def _forward(self, stage: Stage) -> list[FloatArray]:
        table = self._read("model.embed_tokens.weight")
        hidden = [table[ids] * np.float32(self._spec.embed_scale) for ids in self._ids]
        del table
        for index in range(self._spec.num_layers):
            self._residuals.append(hidden)
            layer = Layer(self._spec, self._read, index)
            hidden = [self._look(decoder, layer, x) for decoder, x in zip(self._decoders, hidden, strict=True)]
            stage.advance()
        return hidden

    def _look(self, decoder: Decoder, layer: Layer, x: FloatArray) -> FloatArray:
        """One layer forwards; notes values that FP16 could not hold."""
        y, values = decoder.forward(layer, x)
        limit = float(np.finfo(np.float16).max)
        for kind in KINDS:
            name = f"layers.{layer.index}.{kind}"
            if max(np.abs(values[kind].x).max(), np.abs(values[kind].y).max()) > limit and name not in self.beyond_half:
                self.beyond_half.append(name)
        return y

    def _head(self, hidden: list[FloatArray], show_head: Callable[[SeenLinear], None]) -> FloatArray:
        """Shows the head; the gradient of the first group's last residual [M, d]."""
        spec = self._spec
        norm = self._read("model.norm.weight") + np.float32(spec.norm_offset)
        inputs = [rms_norm(x, norm, spec.norm_eps) for x in hidden]
        weight = self._read("model.embed_tokens.weight" if spec.tied_head else "lm_head.weight").T
        grad = np.empty_like(inputs[0])
        sample = min(HEAD_TOKENS, len(grad))
        grad_y = np.empty((0, 0), np.float32)
        for start in range(0, len(grad), sample):
            part = slice(start, start + sample)
            scores = self._score_gradient(inputs[0][part] @ weight)
            grad[part] = scores @ weight.T
            grad_y = grad_y if start else scores
        show_head(SeenLinear(weight, inputs, inputs[0][:sample], LinearGradients(grad[:sample], grad_y)))
        return rms_norm_gradient(hidden[0], norm, spec.norm_eps, grad)

    def _score_gradient(self, logits: FloatArray) -> FloatArray:
        """Gradient of the log-probability of a drawn token: one-hot minus probabilities, [M, V]."""
        noise = self._random.standard_exponential(size=logits.shape, dtype=np.float32)
        np.log(np.maximum(noise, 1e-30, out=noise), out=noise)
        drawn = np.argmax(logits - noise, axis=1)  # minus the logarithm of an exponential is Gumbel noise
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= -logits.sum(axis=1, keepdims=True)
        logits[np.arange(len(drawn)), drawn] += 1
        return logits

    def _backward(self, grad: FloatArray, show_layer: ShowLayer, stage: Stage) -> None:
        for index in reversed(range(self._spec.num_layers)):
            layer = Layer(self._spec, self._read, index)
            residuals = self._residuals.pop()
            values = [
                decoder.forward(layer, x, _skip_last if group else multiply)[1]
                for group, (decoder, x) in enumerate(zip(self._decoders, residuals, strict=True))
            ]
            grad, gradients = self._decoders[0].backward(layer, residuals[0], values[0], grad)
            show_layer(index, _gather(layer, values, gradients))
            stage.advance()


def _gather(
    layer: Layer, values: list[dict[str, LinearValues]], gradients: dict[str, LinearGradients]
) -> dict[str, SeenLinear]:
    return {
        kind: SeenLinear(layer.weights[kind], [v[kind].x for v in values], values[0][kind].x, gradients[kind])
        for kind in KINDS
    }


def _skip_last(name: str, x: FloatArray, weight: FloatArray, bias: FloatArray | None) -> FloatArray:
    """An ``ApplyLinear`` for where inputs alone are wanted: nothing reads what ``down`` gives."""
    if name.endswith(".down"):
        return np.zeros((len(x), weight.shape[1]), np.float32)
    return multiply(name, x, weight, bias)


def group_sequences(sequences: Sequence[TokenIds], size: int) -> Iterator[list[TokenIds]]:
    """Sequences in groups of about ``size`` tokens."""
    group: list[TokenIds] = []
    for sequence in sequences:
        if group and sum(map(len, group)) + len(sequence) > size:
            yield group
            group = []
        group.append(sequence)
    if group:
        yield group
