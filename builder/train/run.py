"""The order of a training run: text, training, ranking, export. Each stage leaves what a resumed run goes on from."""

import json
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from ..checkpoint.source import Checkpoint, open_checkpoint
from ..errors import BuildError
from ..package.fingerprint import hash_checkpoint
from ..progress import Progress, Silent
from .backend import choose_formats, compile_core
from .curve import write_curve
from .draft_model import DraftModel, draft_spec
from .export import export_draft
from .generation import TextWriter
from .held_out import HeldOutResult, measure_held_out
from .loop import Run, TrainingLoop
from .objective import distil
from .ranking import choose_ranking
from .settings import TrainSettings
from .target_model import TargetModel
from .text import TrainingText, build_script, draw_plan, join_texts, select_rows

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """A run: ``stages`` of "text", "train", "ranking" in that order; ``devices`` GPUs (1 on a CPU)."""

    checkpoint: Path
    folder: Path
    settings: TrainSettings
    device: str
    devices: int
    stages: tuple[str, ...]
    resume: bool


def train_draft(plan: TrainPlan, progress: Progress) -> dict[str, Any]:
    """Run the stages; the draft lies in ``folder``/draft afterwards. Returns the figures that were measured."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    (plan.folder / "settings.json").write_text(json.dumps(plan.settings.to_dict(), indent=2) + "\n", encoding="utf-8")
    if "text" in plan.stages:
        write_text(plan, progress)
    if "train" in plan.stages:
        _launch(plan, progress)
    return finish(plan, progress) if "ranking" in plan.stages else {}


def write_text(plan: TrainPlan, progress: Progress) -> TrainingText:
    """Text of the target's own, to ``text.npz``; what is there already is kept by a resumed run."""
    path, settings = plan.folder / "text.npz", plan.settings
    if plan.resume and path.is_file():
        return TrainingText.load(path)
    torch.manual_seed(settings.seed)
    with open_checkpoint(plan.checkpoint) as checkpoint:
        target, script = load_target(checkpoint, plan), build_script(checkpoint)
    writer = TextWriter(target, script, batch=settings.text_batch, length=settings.length, seed=settings.seed)
    generator = torch.Generator().manual_seed(settings.seed)
    texts: list[TrainingText] = []
    started, done = time.monotonic(), 0
    with progress.stage("writing text", total=settings.text_tokens, unit="tokens") as stage:
        while done < settings.text_tokens and (not done or time.monotonic() - started < settings.text_seconds):
            temperatures, limits = draw_plan(script, settings.text_batch, generator)
            texts.append(select_rows(writer.write(temperatures, limits), script, temperatures[2].numpy()))
            if not texts[-1].num_tokens and len(texts) > 3:
                raise BuildError("training text", expected="rows of use", found="degenerate ones", where=str(path))
            done += texts[-1].num_tokens
            stage.advance(texts[-1].num_tokens)
            log.info("text: %d tokens, %.0f s", done, time.monotonic() - started)
        stage.note(f"{done:,} tokens")
    text = join_texts(texts)
    text.save(path)
    del writer, target
    if plan.device == "cuda":
        torch.cuda.empty_cache()
    return text


def load_target(checkpoint: Checkpoint, plan: TrainPlan) -> TargetModel:
    """The target on the plan's device."""
    formats = choose_formats(plan.device)
    return TargetModel(
        checkpoint.spec,
        checkpoint.weights.read,
        device=plan.device,
        dtype=formats.linears,
        head_dtype=formats.head,
        max_length=-(-plan.settings.length // 128) * 128,
    )


def open_run(plan: TrainPlan) -> Run:
    """Target, fresh draft and text; the last rows are held out, half of them with greedy answers."""
    settings = plan.settings
    with open_checkpoint(plan.checkpoint) as checkpoint:
        target = load_target(checkpoint, plan)
    spec = draft_spec(target.spec, intermediate_size=settings.intermediate_size)
    model = DraftModel(spec, rank=settings.rank, max_length=settings.length, seed=settings.seed)
    text = TrainingText.load(plan.folder / "text.npz")
    model.start_from_target(target.final_norm.cpu(), _feature_size(target, text))
    greedy, sampled = (np.nonzero((text.temperatures == 0) == wanted)[0] for wanted in (True, False))
    half = max(1, min(settings.held_out_rows // 2, len(text.lengths) // 8))
    kept_apart = np.concatenate([greedy[-half:], sampled[-half:]])
    training = np.setdiff1d(np.arange(len(text.lengths)), kept_apart)
    if not len(training):
        raise BuildError("training text", expected="more rows than are held out", found=f"{len(text.lengths)} rows")
    return Run(
        target=target,
        model=model.to(plan.device),
        text=text.take(training),
        held_out=text.take(kept_apart),
        settings=settings,
        folder=plan.folder,
        core=compile_core(plan.device, distil),
    )


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
        "training_tokens": run.text.num_tokens,
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
