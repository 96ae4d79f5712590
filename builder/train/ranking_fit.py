"""The ranking's closed form for a trained draft, and how much of the draft's head a ranking finds."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch.nn import functional

from ..vocabulary.closed_form import fit_ranking
from .batches import Batch, draw_rows, make_batch
from .draft_model import DraftModel
from .settings import TrainSettings
from .target_model import TargetModel
from .text import TrainingText

NUM_MOMENT_BATCHES = 4
RECALL_ROWS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingRecall:
    """At the draft's head inputs of all steps: share of first choices among the candidates, probability covered."""

    top1_recall: float
    covered_mass: float
    num_rows: int

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values."""
        return asdict(self)


@torch.no_grad()  # type: ignore[untyped-decorator]
def head_inputs(target: TargetModel, model: DraftModel, batch: Batch, num_steps: int) -> torch.Tensor:
    """What the head reads at the drawn entries of all steps, float32 [n, d]."""
    with torch.autocast(target.device.type, target.dtype, enabled=target.dtype != torch.float32):
        heads = model.unroll(batch.embedded, batch.features, num_steps)
    counted = batch.counts > 0
    parts = [head.flatten(0, 1)[batch.rows][counted & (batch.entries >= step)] for step, head in enumerate(heads)]
    return torch.cat(parts)


def fit_closed_form(
    target: TargetModel, model: DraftModel, texts: Sequence[TrainingText], settings: TrainSettings
) -> None:
    """Set the ranking to the truncated decomposition of the head, weighted by the hidden states it sees."""
    moment = torch.zeros(model.spec.hidden_size, model.spec.hidden_size, device=target.device, dtype=torch.float64)
    count = 0
    for index in range(NUM_MOMENT_BATCHES):
        rows = draw_rows(texts, settings.batch_tokens, seed=settings.seed, step=1_000_000 + index, rank=0)
        batch = make_batch(target, rows, min(settings.loss_rows, 4096), seed=settings.seed + index)
        hidden = head_inputs(target, model, batch, settings.num_steps).double()
        moment += hidden.T @ hidden
        count += len(hidden)
    head = target.head.float().cpu().numpy()
    down, vocabulary = fit_ranking(head, (moment / max(1, count)).cpu().numpy(), settings.rank)
    with torch.no_grad():
        model.ranking_down.copy_(torch.from_numpy(down))
        model.ranking_vocabulary.copy_(torch.from_numpy(vocabulary))


@torch.no_grad()  # type: ignore[untyped-decorator]
def measure_recall(
    target: TargetModel, model: DraftModel, text: TrainingText, settings: TrainSettings, *, rounds_codes: bool = False
) -> RankingRecall:
    """How well the ranking finds the head's tokens on ``text``; ``rounds_codes`` with INT8 rows as they are shipped."""
    batch = make_batch(target, text.take(np.arange(min(len(text.lengths), settings.batch))), RECALL_ROWS, seed=0)
    hidden = head_inputs(target, model, batch, settings.num_steps)
    vocabulary = model.ranking_vocabulary
    if rounds_codes:
        scales = vocabulary.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        vocabulary = torch.round(vocabulary / scales) * scales
    found = covered = 0.0
    for part in hidden.split(1024):
        q = torch.softmax(target.logits(part).float(), -1)
        scores = functional.linear(functional.linear(part, model.ranking_down), vocabulary)
        chosen = scores.topk(min(settings.num_candidates, scores.shape[1]), sorted=False).indices
        covered += float(q.gather(1, chosen).sum())
        found += float((chosen == q.argmax(-1, keepdim=True)).any(-1).sum())
    size = max(1, len(hidden))
    return RankingRecall(top1_recall=found / size, covered_mass=covered / size, num_rows=len(hidden))
