"""The training loop: batches, loss, optimiser, checkpoints that a later run goes on from, held-out figures.

On a CPU with limits by steps, stopping and going on gives bit for bit the weights of one uninterrupted run.
"""

import csv
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from ..progress import Stage
from .batches import Batch, draw_rows, make_batch
from .draft_model import DraftModel
from .objective import Distilled, distil, soft_cross_entropy, step_weights
from .ranking_fit import fit_closed_form
from .schedule import learning_rate_factor, run_progress
from .settings import TrainSettings
from .target_model import TargetModel
from .text import TrainingText

log = logging.getLogger(__name__)
Core = Callable[[torch.Tensor, torch.Tensor], Distilled]
RANKING_ROWS_SHARE = 4
"""One loss row in this many also trains the ranking."""
LOG_EVERY = 10


@dataclass(slots=True, kw_only=True)
class Run:
    """What a loop works with. ``core``: ``distil`` or its compiled form."""

    target: TargetModel
    model: DraftModel
    texts: Sequence[TrainingText]
    held_out: Sequence[TrainingText]
    settings: TrainSettings
    folder: Path
    core: Core = distil


@dataclass(slots=True)
class LoopState:
    """Where a run stands; saved with weights and optimiser."""

    step: int = 0
    elapsed: float = 0.0
    ranking_started: bool = False


class TrainingLoop:
    """Trains the draft, and from ``ranking_start`` on its ranking with it."""

    def __init__(self, run: Run, accelerator: Accelerator) -> None:
        self._run, self._accelerator, self.state = run, accelerator, LoopState()
        self._optimizers = make_optimizers(run)
        self._rates: list[list[float]] = [[g["lr"] for g in each.param_groups] for each in self._optimizers]
        self._wrapped = accelerator.prepare(_Unroll(run.model)) if accelerator.num_processes > 1 else _Unroll(run.model)

    def train(self, stage: Stage, *, until_step: int | None = None) -> None:
        """Go on until the run's end, or until ``until_step`` (then ``resume`` goes on later)."""
        settings = self._run.settings
        started, saved = time.monotonic() - self.state.elapsed, time.monotonic()
        while True:
            self.state.elapsed = self._agree(time.monotonic() - started)
            done = run_progress(self.state.step, settings.max_steps, self.state.elapsed, settings.max_seconds)
            if done >= 1 or self.state.step == until_step:
                break
            if done >= settings.ranking_start and not self.state.ranking_started:
                self._start_ranking()
            row = self._step(done)
            self.state.step += 1
            stage.advance()
            if self.state.step % LOG_EVERY == 0 or self.state.step == 1:
                self._record(row)
            if settings.save_seconds and time.monotonic() - saved > settings.save_seconds:
                saved = time.monotonic()
                self.save()
        self.save()

    def save(self) -> None:
        """Weights, optimiser and place, written beside and renamed (by the first process)."""
        if not self._accelerator.is_main_process:
            return
        values = {
            "model": self._run.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "state": (self.state.step, self.state.elapsed, self.state.ranking_started),
        }
        part = self._run.folder / "checkpoint.pt.part"
        torch.save(values, part)
        part.replace(self._run.folder / "checkpoint.pt")

    def resume(self) -> bool:
        """Go on from the folder's checkpoint; False where there is none."""
        path = self._run.folder / "checkpoint.pt"
        if not path.is_file():
            return False
        values = torch.load(path, map_location=self._run.target.device, weights_only=True)
        self._run.model.load_state_dict(values["model"])
        for optimizer, state in zip(self._optimizers, values["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        self.state = LoopState(*values["state"])
        return True

    def _step(self, done: float) -> dict[str, Any]:
        run, settings, step = self._run, self._run.settings, self.state.step
        rank = self._accelerator.process_index
        rows = draw_rows(run.texts, settings.batch_tokens, seed=settings.seed, step=step, rank=rank)
        batch = make_batch(run.target, rows, settings.loss_rows, seed=settings.seed + step)
        factor = learning_rate_factor(done, step, settings.warmup_steps)
        for optimizer, rates in zip(self._optimizers, self._rates, strict=True):
            optimizer.zero_grad(set_to_none=True)
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor
        loss, agreed, shared = self._loss(batch)
        self._accelerator.backward(loss)
        norm = self._accelerator.clip_grad_norm_(run.model.parameters(), 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
        return {
            "loss": loss.detach(),
            "norm": norm,
            "rate": factor * settings.learning_rate,
            "agreed": agreed,
            "shared": shared,
        }

    def _loss(self, batch: Batch) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        """Mean over entries, weighted over steps; agreement and shared probability by step."""
        run, settings = self._run, self._run.settings
        with autocast(run.target):
            heads = self._wrapped(batch.embedded, batch.features, settings.num_steps)
        total = torch.zeros((), device=run.target.device)
        agreed, shared = [], []
        for step, weight in enumerate(step_weights(settings.num_steps, settings.step_decay)):
            part = slice(0, -(-int(len(batch.rows) * settings.step_decay**step) // 128) * 128)
            hidden = heads[step].flatten(0, 1)[batch.rows[part]]
            counts = batch.counts[part] * (batch.entries[part] >= step)
            number = counts.sum().clamp(min=1)
            loss, agrees, shares = soft_cross_entropy(hidden, run.target.head, batch.target[part], counts, run.core)
            total = total + weight * loss / number
            if self.state.ranking_started:
                total = total + settings.ranking_weight * weight * ranking_loss(run, batch, hidden, counts)
            agreed.append((agrees * counts).sum() / number)
            shared.append((shares * counts).sum() / number)
        return total, agreed, shared

    def _start_ranking(self) -> None:
        """The closed form for the draft as it is, as the ranking's first value."""
        fit_closed_form(self._run.target, self._run.model, self._run.texts, self._run.settings)
        self.state.ranking_started = True

    def _agree(self, elapsed: float) -> float:
        """The first process's clock, for all."""
        if self._accelerator.num_processes == 1:
            return elapsed
        clock = torch.tensor([elapsed], device=self._run.target.device)
        torch.distributed.broadcast(clock, 0)
        return float(clock)

    def _record(self, row: dict[str, Any]) -> None:
        """A line of the loss curve, and of the log."""
        if not self._accelerator.is_main_process:
            return
        agreed, shared = ([round(float(v), 4) for v in row[name]] for name in ("agreed", "shared"))
        values: list[Any] = [self.state.step, round(self.state.elapsed, 2), f"{row['rate']:.3e}"]
        values += [round(float(row["loss"]), 5), round(float(row["norm"]), 4), *agreed, *shared]
        path = self._run.folder / "curve.csv"
        is_new = not path.is_file()
        with path.open("a", newline="") as file:
            writer = csv.writer(file)
            if is_new:
                steps = range(self._run.settings.num_steps)
                names = [f"agreed_{s + 1}" for s in steps] + [f"shared_{s + 1}" for s in steps]
                writer.writerow(["step", "seconds", "learning_rate", "loss", "gradient_norm", *names])
            writer.writerow(values)
        log.info("step %d, %.0f s: loss %.4f, agreed %s", values[0], values[1], values[3], agreed)


def make_optimizers(run: Run) -> list[torch.optim.Optimizer]:
    """Muon (https://kellerjordan.github.io/posts/muon) for the draft's matrices, AdamW for norms and the ranking."""
    settings, model = run.settings, run.model
    matrices, norms = list(model.linears.parameters()), list(model.norms.parameters())
    ranking: dict[str, Any] = {
        "params": [model.ranking_down, model.ranking_vocabulary],
        "lr": settings.ranking_learning_rate,
    }
    others = [{"params": norms, "lr": settings.learning_rate}, ranking]
    return [
        torch.optim.Muon(
            matrices,
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        ),
        torch.optim.AdamW(others, weight_decay=0.0, betas=(0.9, 0.95), fused=run.target.device.type == "cuda"),
    ]


class _Unroll(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
    """The draft with ``unroll`` as its forward pass, which is what data-parallel wrappers call."""

    def __init__(self, model: DraftModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, embedded: torch.Tensor, features: torch.Tensor, num_steps: int) -> list[torch.Tensor]:
        return self.model.unroll(embedded, features, num_steps)


def ranking_loss(run: Run, batch: Batch, hidden: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the ranking's scores to the target, on a share of the rows."""
    part = slice(0, max(1, len(hidden) // RANKING_ROWS_SHARE))
    scores = torch.nn.functional.linear(hidden[part], run.model.ranking_down)
    loss, _, _ = soft_cross_entropy(scores, run.model.ranking_vocabulary, batch.target[part], counts[part], run.core)
    return loss / counts[part].sum().clamp(min=1)


def autocast(target: TargetModel) -> Any:
    """The dtype that the draft's linears run in: the target's."""
    return torch.autocast(target.device.type, target.dtype, enabled=target.dtype != torch.float32)
