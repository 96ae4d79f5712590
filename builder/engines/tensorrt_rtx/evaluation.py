"""How far an engine's arithmetic is from FP32, emulated in NumPy on held-out text: no GPU is needed to know it.

Emulated: activations that enter and leave a linear are rounded to FP16, weights are FP16 or restored from INT8, sums
are FP32 as on tensor cores. The residual stream, norms and softmax are FP32 in the graph as well.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...checkpoint.source import Checkpoint
from ...errors import BuildError
from ...progress import Progress
from ...quantize.forward import Forward, logits_in_chunks, multiply
from ...quantize.text import encode_documents, read_shipped
from .weight_only import quantize_columns

FloatArray = npt.NDArray[np.float32]
RestoreWeight = Callable[[FloatArray, str], FloatArray]
MAX_TOKENS = 1024
DEFAULT_MAX_KL = 0.02
DEFAULT_MIN_TOP1 = 0.9
LARGEST_FP16 = 65504.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """KL(FP32 || engine) in nats a token, and the share of tokens whose most probable next token is the same.

    ``worst_linear``: the one whose own weights change its output most, by ``worst_error`` (RMS, relative).
    """

    kl_per_token: float
    kl_max: float
    top1_agreement: float
    num_tokens: int
    worst_linear: str
    worst_error: float

    def to_dict(self) -> dict[str, Any]:
        """As the manifest's ``quality`` says it."""
        return {
            "kl_per_token": round(self.kl_per_token, 6),
            "kl_max": round(self.kl_max, 6),
            "top1_agreement": round(self.top1_agreement, 4),
            "num_tokens": self.num_tokens,
            "worst_linear": self.worst_linear,
            "worst_error": round(self.worst_error, 6),
            "reference": "fp32",
            "measured": "emulated in NumPy on held-out text",
        }

    def check(self, max_kl: float | None, min_top1: float | None) -> None:
        """Raise ``BuildError`` beyond a limit; None takes the default."""
        max_kl = DEFAULT_MAX_KL if max_kl is None else max_kl
        min_top1 = DEFAULT_MIN_TOP1 if min_top1 is None else min_top1
        if self.kl_per_token <= max_kl and self.top1_agreement >= min_top1:
            return
        raise BuildError(
            "quality gate",
            expected=f"KL at most {max_kl:g} nats per token, top-1 at least {min_top1:.1%}",
            found=f"KL {self.kl_per_token:.4f}, top-1 {self.top1_agreement:.1%}, "
            f"worst linear {self.worst_linear} ({self.worst_error:.1%} off)",
            where=f"{self.num_tokens:,} tokens of held-out text, backend tensorrt-rtx",
            action="Raise the limits with --max-kl and --min-top1, or build FP16",
        )


def measure_distance(checkpoint: Checkpoint, precision: str, progress: Progress) -> Distance:
    """Run held-out text through FP32 and through the engine's arithmetic, layer by layer.

    Raises ``BuildError`` naming the linear whose values leave the range of FP16.
    """
    sequences = encode_documents(read_shipped("held_out"), checkpoint.tokenizer, MAX_TOKENS)
    spec, read = checkpoint.spec, checkpoint.weights.read
    forward = Forward(spec, read, [len(s) for s in sequences] * 2)  # all in FP32, then all again in FP16
    emulation = HalfAndHalf(restore_int8 if precision == "int8" else restore_fp16)
    with progress.stage(f"compare {precision} with fp32", total=spec.num_layers, unit="layers") as stage:
        exact = forward.embed(np.concatenate(sequences))
        both = np.concatenate([exact, to_fp16(exact, "embedding")])
        for index in range(spec.num_layers):
            both = forward.layer(index, both, emulation)
            stage.advance()
        exact, rounded = np.split(forward.final_norm(both), 2)
        head = read("model.embed_tokens.weight" if spec.tied_head else "lm_head.weight").T
        distance = _compare(exact, rounded, head, emulation)
        stage.note(f"KL {distance.kl_per_token:.5f} nats per token, top-1 {distance.top1_agreement:.1%}")
    return distance


class HalfAndHalf:
    """An ``ApplyLinear``: the first half of the rows in FP32, the other half as the engine computes.

    ``errors``: by linear, how far restored weights move its output (RMS, relative), inputs being equal.
    """

    def __init__(self, restore: RestoreWeight) -> None:
        self.restore = restore
        self.errors: dict[str, float] = {}

    def __call__(self, name: str, x: FloatArray, weight: FloatArray, bias: FloatArray | None) -> FloatArray:
        """See ``ApplyLinear``."""
        exact, rounded = np.split(x, 2)
        restored = self.restore(weight, name)
        self.note_error(name, exact, weight, restored)
        rounded = multiply(name, to_fp16(rounded, f"input of {name}"), restored, bias)
        return np.concatenate([multiply(name, exact, weight, bias), to_fp16(rounded, f"output of {name}")])

    def note_error(self, name: str, x: FloatArray, weight: FloatArray, restored: FloatArray) -> None:
        """Compare the two products on a few rows of ``x`` [M, d_in]."""
        some = x[:: max(1, len(x) // 32)]
        wanted = some @ weight
        moved, size = float(np.linalg.norm(some @ restored - wanted)), float(np.linalg.norm(wanted))
        self.errors[name] = moved / size if size else 0.0


def to_fp16(x: FloatArray, where: str) -> FloatArray:
    """``x`` rounded to FP16; raises ``BuildError`` where it does not fit."""
    largest = float(np.abs(x).max(initial=0.0))
    if not largest <= LARGEST_FP16:
        raise BuildError(
            f"FP16 overflow, {where}",
            expected=f"values up to {LARGEST_FP16:,.0f}",
            found=f"{largest:,.0f}",
            where="held-out text, backend tensorrt-rtx",
            action="This model needs FP32 there: build it with `--backend onnxruntime`",
        )
    return x.astype(np.float16).astype(np.float32)


def restore_fp16(weight: FloatArray, name: str) -> FloatArray:
    """What an FP16 engine multiplies with."""
    return to_fp16(weight, f"weight of {name}")


def restore_int8(weight: FloatArray, name: str) -> FloatArray:
    """What an INT8 engine multiplies with: codes times FP16 scales, rounded to FP16."""
    codes, scales = quantize_columns(weight)
    return restore_fp16(codes * to_fp16(scales, f"scales of {name}"), name)


def _compare(exact: FloatArray, rounded: FloatArray, head: FloatArray, emulation: HalfAndHalf) -> Distance:
    """Distance of the logits; ``exact`` and ``rounded``: what the heads read, [M, d]."""
    restored = emulation.restore(head, "head")
    emulation.note_error("head", exact, head, restored)
    rounded = to_fp16(rounded, "input of head")
    distances, same = [], []
    for p_logits, q_logits in zip(logits_in_chunks(exact, head), logits_in_chunks(rounded, restored), strict=True):
        log_p, log_q = _log_softmax(p_logits), _log_softmax(to_fp16(q_logits, "output of head"))  # [256, V]
        distances.append((np.exp(log_p) * (log_p - log_q)).sum(axis=-1))
        same.append(p_logits.argmax(axis=-1) == q_logits.argmax(axis=-1))
    kl, errors = np.concatenate(distances), emulation.errors
    worst = max(errors, key=lambda name: errors[name])
    return Distance(
        kl_per_token=float(kl.mean()),
        kl_max=float(kl.max()),
        top1_agreement=float(np.mean(np.concatenate(same))),
        num_tokens=len(kl),
        worst_linear=worst,
        worst_error=errors[worst],
    )


def _log_softmax(logits: FloatArray) -> npt.NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    result: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result
