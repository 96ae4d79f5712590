"""The order of a training run: text, training, ranking, export. Each stage leaves what a resumed run goes on from."""

import json
import logging
import os
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from ..checkpoint.source import open_checkpoint
from ..errors import BuildError
from ..package.fingerprint import hash_checkpoint
from ..progress import Progress, Silent
from .backend import compile_core
from .curve import write_curve
from .draft_model import DraftModel, draft_spec
from .export import export_draft
from .held_out import HeldOutResult, measure_held_out
from .loop import Run, TrainingLoop
from .objective import distil
from .plan import TrainPlan, load_target
from .ranking import choose_ranking
from .settings import TrainSettings
from .target_model import TargetModel
from .text import TrainingText
from .writing import has_texts, load_texts, write_texts

log = logging.getLogger(__name__)


def train_draft(plan: TrainPlan, progress: Progress) -> dict[str, Any]:
    """Run the stages; the draft lies in ``folder``/draft afterwards. Returns the figures that were measured."""
    if "text" not in plan.stages and not has_texts(plan.folder):
        raise _text_is_missing(plan)
    plan.folder.mkdir(parents=True, exist_ok=True)
    (plan.folder / "settings.json").write_text(json.dumps(plan.settings.to_dict(), indent=2) + "\n", encoding="utf-8")
    if "text" in plan.stages:
        write_texts(plan, progress)
    if "train" in plan.stages:
        _launch(plan, progress)
    return finish(plan, progress) if "ranking" in plan.stages else {}


def open_run(plan: TrainPlan) -> Run:
    """Target, fresh draft and text; the last rows are held out, half of them with greedy answers."""
    settings = plan.settings
    with open_checkpoint(plan.checkpoint) as checkpoint:
        target = load_target(checkpoint, plan)
    spec = draft_spec(target.spec, intermediate_size=settings.intermediate_size)
    model = DraftModel(spec, rank=settings.rank, max_length=settings.max_length, seed=settings.seed)
    texts = load_texts(plan.folder)
    if not texts:
        raise _text_is_missing(plan)
    model.start_from_target(target.final_norm.cpu(), _feature_size(target, texts[0]))
    training, held_out = zip(*(_hold_out(text, settings) for text in texts), strict=True)
    return Run(
        target=target,
        model=model.to(plan.device),
        texts=training,
        held_out=held_out,
        settings=settings,
        folder=plan.folder,
        core=compile_core(plan.device, distil),
    )


def _text_is_missing(plan: TrainPlan) -> BuildError:
    return BuildError(
        "training text", expected="text.npz", found="none", where=str(plan.folder), action="Run stage text."
    )


def _hold_out(text: TrainingText, settings: TrainSettings) -> tuple[TrainingText, TrainingText]:
    """Rows for training, and those held out: the last, as many fewer as they are longer."""
    greedy, sampled = (np.nonzero((text.temperatures == 0) == wanted)[0] for wanted in (True, False))
    wanted_rows = settings.held_out_rows * settings.length // text.token_ids.shape[1]
    half = max(1, min(wanted_rows // 2, len(text.lengths) // 8))
    kept_apart = np.concatenate([greedy[-half:], sampled[-half:]])
    training = np.setdiff1d(np.arange(len(text.lengths)), kept_apart)
    if not len(training):
        raise BuildError("training text", expected="more rows than are held out", found=f"{len(text.lengths)} rows")
    return text.take(training), text.take(kept_apart)


def _feature_size(target: TargetModel, text: TrainingText) -> float:
    """Median over positions of the last feature's root mean square, on a few rows."""
    ids = torch.from_numpy(text.token_ids[:4].astype(np.int64)).to(target.device)
    last = target.run(ids).features[..., -target.spec.hidden_size :].float()
    return max(1e-6, float(last.square().mean(-1).sqrt().median()))


def train(plan: TrainPlan, progress: Progress) -> HeldOutResult:
    """The training loop in this process; with several GPUs each process calls it."""
    accelerator = Accelerator(cpu=plan.device == "cpu")
    run = open_run(plan)
    loop = TrainingLoop(run, accelerator)
    if not (plan.resume and loop.resume()):
        (plan.folder / "curve.csv").unlink(missing_ok=True)
    with progress.stage("training the draft", total=plan.settings.max_steps, unit="steps") as stage:
        loop.train(stage)
        result: HeldOutResult = measure_held_out(run.target, run.model, run.held_out)
        stage.note(result.describe())
    log.info("held out: %s", result.describe())
    return result


def finish(plan: TrainPlan, progress: Progress) -> dict[str, Any]:
    """The ranking's comparison, the held-out figures, the export and the curve."""
    run = open_run(plan)
    loop = TrainingLoop(run, Accelerator(cpu=plan.device == "cpu"))
    if not loop.resume():
        raise BuildError(
            "trained draft", expected="checkpoint.pt", found="none", where=str(plan.folder), action="Run stage train."
        )
    with progress.stage("training the ranking", total=plan.settings.ranking_steps, unit="steps") as stage:
        recalls = choose_ranking(run, stage)
        stage.note(f"best: {next(iter(recalls))}")
    held_out = measure_held_out(run.target, run.model, run.held_out)
    log.info("held out: %s", held_out.describe())
    figures = {
        "held_out": held_out.to_dict(),
        "ranking": {name: recall.to_dict() for name, recall in recalls.items()},
        "training_tokens": sum(text.num_tokens for text in run.texts),
        "steps": loop.state.step,
    }
    (plan.folder / "figures.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    sha = hash_checkpoint(plan.checkpoint, Silent())
    facts = {"settings": plan.settings.to_dict(), "figures": figures}
    export_draft(run.model, plan.settings, plan.folder / "draft", target_sha256=sha, facts=facts)
    write_curve(plan.folder / "curve.csv", plan.folder / "curve.svg")
    return figures


def _launch(plan: TrainPlan, progress: Progress) -> None:
    """Train here, or in a process for each GPU."""
    if plan.devices == 1:
        train(plan, progress)
        return
    torch.multiprocessing.spawn(_train_process, args=(plan,), nprocs=plan.devices)


def _train_process(rank: int, plan: TrainPlan) -> None:
    """What each spawned process runs; accelerate reads its place from the environment."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(plan.devices)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29431"}
    torch.cuda.set_device(rank)
    train(plan, Silent())
