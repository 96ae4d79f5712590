"""The INT8 plan for our own CPU operators: activations have 16 bits, so only weights are rounded.

One pass forwards over calibration text, a layer at a time: what enters a linear decides how its weights are rounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..checkpoint.source import Checkpoint
from ..graph.linear import EmbeddingPlan, LinearPlan
from ..graph.native_linear import NativeEmbedding, NativeHead, NativeLinear, NativeTiedHead, Rounded
from ..progress import Progress
from .calibration import GROUP_TOKENS, group_sequences
from .decoder import Decoder, Layer
from .decoder_math import rms_norm
from .plan import MAX_CALIBRATION_TOKENS
from .rounding import compensate_rounding
from .text import encode_documents, read_shipped, split_text

FloatArray = npt.NDArray[np.float32]


@dataclass(slots=True, kw_only=True)
class NativePlan:
    """Plans by joined name, and the embedding's, which a tied head shares."""

    linears: dict[str, LinearPlan] = field(default_factory=dict)
    embedding: EmbeddingPlan = field(default_factory=NativeEmbedding)


def plan_native(checkpoint: Checkpoint, *, calibration_text: str | None, progress: Progress) -> NativePlan:
    """Round weights so that errors cancel on the text; a tied head stays as the embedding is."""
    spec, read = checkpoint.spec, checkpoint.weights.read
    documents = read_shipped("calibration") if calibration_text is None else split_text(calibration_text)
    sequences = encode_documents(documents, checkpoint.tokenizer, MAX_CALIBRATION_TOKENS)
    groups = list(group_sequences(sequences, GROUP_TOKENS))
    decoders = [Decoder(spec, [len(sequence) for sequence in group]) for group in groups]
    table = read("model.embed_tokens.weight")
    hidden = [table[np.concatenate(group)] * np.float32(spec.embed_scale) for group in groups]
    del table
    plan = NativePlan()
    with progress.stage("calibrate", total=spec.num_layers, unit="layers") as stage:
        for index in range(spec.num_layers):
            hidden, rounded = _round_layer(decoders, Layer(spec, read, index), hidden)
            plan.linears |= {f"layers.{index}.{kind}": linear for kind, linear in rounded.items()}
            stage.advance()
        if spec.tied_head:
            plan.linears["head"] = NativeTiedHead()
        else:
            norm = read("model.norm.weight") + np.float32(spec.norm_offset)
            inputs = [rms_norm(x, norm, spec.norm_eps) for x in hidden]
            plan.linears["head"] = NativeHead(_round(read("lm_head.weight").T, inputs))
        stage.note(f"{sum(map(len, hidden)):,} tokens")
    return plan


def _round_layer(
    decoders: Sequence[Decoder], layer: Layer, hidden: Sequence[FloatArray]
) -> tuple[list[FloatArray], dict[str, NativeLinear]]:
    """The residuals behind a layer, and its linears by kind."""
    results = [decoder.forward(layer, x) for decoder, x in zip(decoders, hidden, strict=True)]
    rounded = {
        kind: NativeLinear(_round(weight, [values[kind].x for _, values in results]))
        for kind, weight in layer.weights.items()
    }
    return [x for x, _ in results], rounded


def _round(weight: FloatArray, inputs: Sequence[FloatArray]) -> Rounded | None:
    """``weight`` [d_in, d_out] rounded for inputs [M, d_in]; None would be to the nearest."""
    moment = np.zeros((len(weight), len(weight)))
    for x in inputs:
        moment += x.T @ x
    return compensate_rounding(weight, moment / sum(map(len, inputs)))
