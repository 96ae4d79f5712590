"""The ranking trained alone behind a frozen draft, and the choice between that and the one trained jointly."""

import logging
import time

import torch

from ..progress import Stage
from .batches import draw_rows, make_batch
from .loop import Run, autocast, ranking_loss
from .objective import step_weights
from .ranking_fit import RankingRecall, fit_closed_form, measure_recall
from .schedule import learning_rate_factor, run_progress

log = logging.getLogger(__name__)
Weights = tuple[torch.Tensor, torch.Tensor]


def choose_ranking(run: Run, stage: Stage) -> dict[str, RankingRecall]:
    """Compare the jointly trained ranking, the closed form and the one trained alone; the model keeps the best.

    The best covers most of the draft's own probability on held-out text. Returns all three, the best first.
    """
    found: dict[str, tuple[RankingRecall, Weights]] = {}

    def note(name: str) -> None:
        found[name] = (_measure(run), _copy(run))
        log.info("ranking %s: %s", name, found[name][0])

    note("joint")
    fit_closed_form(run.target, run.model, run.texts, run.settings)
    note("closed form")
    train_ranking(run, stage)
    note("frozen draft")
    order = sorted(found, key=lambda name: -found[name][0].covered_mass)
    with torch.no_grad():
        for parameter, value in zip(_parameters(run), found[order[0]][1], strict=True):
            parameter.copy_(value)
    return {name: found[name][0] for name in order}


def train_ranking(run: Run, stage: Stage) -> None:
    """L_aux alone: only ``ranking_down`` and ``ranking_vocabulary`` move."""
    settings = run.settings
    optimizer = torch.optim.AdamW(_parameters(run), lr=settings.ranking_learning_rate, weight_decay=0.0)
    weights = step_weights(settings.num_steps, settings.step_decay)
    started = time.monotonic()
    for step in range(settings.ranking_steps):
        done = run_progress(step, settings.ranking_steps, time.monotonic() - started, settings.ranking_seconds)
        if done >= 1:
            break
        optimizer.param_groups[0]["lr"] = settings.ranking_learning_rate * learning_rate_factor(done, step, 20)
        rows = draw_rows(run.texts, settings.batch_tokens, seed=settings.seed + 1, step=step, rank=0)
        batch = make_batch(run.target, rows, settings.loss_rows, seed=settings.seed + step)
        with torch.no_grad(), autocast(run.target):
            heads = run.model.unroll(batch.embedded, batch.features, settings.num_steps)
        loss = torch.zeros((), device=run.target.device)
        for number, weight in enumerate(weights):
            counts = batch.counts * (batch.entries >= number)
            loss = loss + weight * ranking_loss(run, batch, heads[number].flatten(0, 1)[batch.rows], counts)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(_parameters(run), 1.0)
        optimizer.step()
        stage.advance()
        if step % 20 == 0:
            log.info("ranking step %d: loss %.4f", step, float(loss.detach()))


def _parameters(run: Run) -> list[torch.Tensor]:
    return [run.model.ranking_down, run.model.ranking_vocabulary]


def _copy(run: Run) -> Weights:
    down, vocabulary = (parameter.detach().clone() for parameter in _parameters(run))
    return down, vocabulary


def _measure(run: Run) -> RankingRecall:
    recall: RankingRecall = measure_recall(run.target, run.model, run.held_out[0], run.settings, rounds_codes=True)
    return recall
