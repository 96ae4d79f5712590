"""Compares an engine with the float model on held-out text, and refuses a build that is too far from it.

The float side is the NumPy decoder with weights as FP16 holds them, layer by layer; the engine runs as it will be
served. So the gate also notices a graph that computes something else.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from draftsmith.model_repo.runtime.sessions.base import StepInputs, TargetSession

from ..checkpoint.source import Checkpoint
from ..errors import BuildError
from ..progress import Progress, Stage
from .decoder import FloatArray, TokenIds
from .float_states import FloatStates, read_half
from .forward import Forward, multiply
from .text import encode_documents, read_shipped

MAX_HELD_OUT_TOKENS = 1024
CHUNK_TOKENS = 32
DEFAULT_MAX_KL = 0.02
DEFAULT_MIN_TOP1 = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityLimits:
    """``max_kl``: mean KL(float || engine), nats per token; ``min_top1``: share of tokens whose best next agrees."""

    max_kl: float = DEFAULT_MAX_KL
    min_top1: float = DEFAULT_MIN_TOP1


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityReport:
    """Distances in nats per token. ``worst_linear``: whose rounding alone should cost most, ``worst_kl`` nats."""

    kl_per_token: float
    kl_p99: float
    kl_max: float
    top1_agreement: float
    num_tokens: int
    worst_linear: str | None = None
    worst_kl: float | None = None
    limits: QualityLimits = field(default_factory=QualityLimits)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, as the manifest's ``quality`` has them."""
        return {
            "kl_per_token": round(self.kl_per_token, 6),
            "kl_p99": round(self.kl_p99, 6),
            "kl_max": round(self.kl_max, 6),
            "top1_agreement": round(self.top1_agreement, 4),
            "num_tokens": self.num_tokens,
            "reference": "fp16 weights in NumPy",
            "worst_linear": self.worst_linear,
            "worst_kl": self.worst_kl,
            "max_kl": self.limits.max_kl,
            "min_top1": self.limits.min_top1,
        }

    @property
    def passes(self) -> bool:
        """Within the limits; false where a figure is no number."""
        return self.kl_per_token <= self.limits.max_kl and self.top1_agreement >= self.limits.min_top1

    def with_worst(self, linears: Mapping[str, Mapping[str, Any]]) -> "QualityReport":
        """The same with the worst of ``linears``: a plan's table, with ``activation_kl`` and ``weight_kl`` by name."""
        costs = {name: row["activation_kl"] + row["weight_kl"] for name, row in linears.items()}
        if not costs:
            return self
        worst = max(costs, key=lambda name: costs[name])
        return replace(self, worst_linear=worst, worst_kl=costs[worst])

    def check(self) -> None:
        """Raise ``BuildError`` where a limit is passed."""
        if self.passes:
            return
        worst = f", worst linear {self.worst_linear} ({self.worst_kl:.4f} nats)" if self.worst_linear else ""
        raise BuildError(
            "quality gate",
            expected=f"KL at most {self.limits.max_kl:g} nats per token, top-1 at least {self.limits.min_top1:.1%}",
            found=f"KL {self.kl_per_token:.4f}, top-1 {self.top1_agreement:.1%}{worst}",
            where=f"{self.num_tokens:,} tokens of held-out text, INT8 against FP16",
            action="Raise the limits with --max-kl and --min-top1, calibrate on text like yours, or build FP16",
        )


def quality_gate(
    checkpoint: Checkpoint,
    session: TargetSession,
    limits: QualityLimits,
    *,
    progress: Progress,
    states: FloatStates | None = None,
) -> QualityReport:
    """Measure ``session`` against ``checkpoint``; the caller checks the report.

    ``states``: what the float model made of held-out text before, None to run it here.
    """
    sequences = encode_documents(read_shipped("held_out"), checkpoint.tokenizer, MAX_HELD_OUT_TOKENS)
    sequences = [sequence[: session.capacity] for sequence in sequences]
    hidden = None if states is None else states.find(sequences)
    steps = len(sequences) + (checkpoint.spec.num_layers if hidden is None else 0)
    with progress.stage("quality gate", total=steps, unit="steps") as stage:
        hidden = hidden or _run_float(checkpoint, sequences, stage)
        distances, same = _compare(checkpoint, session, zip(sequences, hidden, strict=True), stage)
        report = QualityReport(
            kl_per_token=float(np.mean(distances)),
            kl_p99=float(np.quantile(distances, 0.99)),
            kl_max=float(np.max(distances)),
            top1_agreement=float(np.mean(same)),
            num_tokens=len(distances),
            limits=limits,
        )
        stage.note(f"KL {report.kl_per_token:.4f} nats per token, top-1 {report.top1_agreement:.1%}")
    return report


def _run_float(checkpoint: Checkpoint, sequences: Sequence[TokenIds], stage: Stage) -> list[FloatArray]:
    """What the float model's head reads, [n, d] of each sequence."""
    spec = checkpoint.spec
    forward = Forward(spec, read_half(checkpoint.weights.read), [len(s) for s in sequences])
    x = forward.embed(np.concatenate(sequences))
    for index in range(spec.num_layers):
        x = forward.layer(index, x, multiply)
        stage.advance()
    return np.split(forward.final_norm(x), np.cumsum([len(s) for s in sequences])[:-1])


def _compare(
    checkpoint: Checkpoint, session: TargetSession, texts: Iterable[tuple[TokenIds, FloatArray]], stage: Stage
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """KL of every token of ``texts``, ids and float states each, and whether both sides would continue alike."""
    name = "model.embed_tokens.weight" if checkpoint.spec.tied_head else "lm_head.weight"
    head = read_half(checkpoint.weights.read)(name).T
    distances, same = [], []
    for sequence, normed in texts:
        for start, logits in _engine_logits(session, sequence):
            expected = normed[start : start + len(logits)] @ head
            distances.append(kl_divergence(expected, logits))
            same.append(expected.argmax(axis=-1) == logits.argmax(axis=-1))
        stage.advance()
    return np.concatenate(distances), np.concatenate(same)


def _engine_logits(session: TargetSession, sequence: TokenIds) -> Iterator[tuple[int, FloatArray]]:
    """(first token, logits [N, V]) chunk by chunk, in slot 0."""
    size = min(CHUNK_TOKENS, session.max_query_len)
    for start in range(0, len(sequence), size):
        ids = sequence[start : start + size].astype(np.int32)
        count = len(ids)
        block = np.arange(count, dtype=np.int32)
        outputs = session.step(
            StepInputs(
                slots=np.zeros(1, np.int32),
                token_ids=ids[None],
                positions=(start + block)[None],
                past_lengths=np.array([start], np.int32),
                query_lengths=np.array([count], np.int32),
                tree_mask=np.tril(np.ones((1, count, count), np.bool_)),
                logits_index=block[None],
            )
        )
        yield start, outputs.logits[0]


def kl_divergence(expected: FloatArray, found: FloatArray) -> npt.NDArray[np.float64]:
    """KL(softmax(expected) || softmax(found)) of each row of [M, V], in nats; NaN where a logit is no number."""
    log_p, log_q = _log_softmax(expected), _log_softmax(found)
    divergence: npt.NDArray[np.float64] = np.sum(np.exp(log_p) * (log_p - log_q), axis=-1, dtype=np.float64)
    return divergence


def _log_softmax(logits: FloatArray) -> FloatArray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True, dtype=np.float64)), np.float32)
