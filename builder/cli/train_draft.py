"""``build-engine train-draft``: an EAGLE-3 draft with a speculative vocabulary, trained on the target's own text."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from .output import JsonOption, QuietOption, open_progress, print_facts, print_json, resumable
from .paths import check_output, to_path

STAGES = ("text", "train", "ranking")
_TEXT, _TRAINING, _DRAFT = "Text", "Training", "Draft"

Target = Annotated[Path, typer.Argument(parser=to_path, metavar="TARGET", help="Hugging Face folder or GGUF file.")]
Output = Annotated[
    Path, typer.Option("--output", "-o", parser=to_path, metavar="FOLDER", help="Gets text, checkpoints and draft/.")
]
Stages = Annotated[str, typer.Option(help="What to do: text, train, ranking; comma-separated.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from what the folder holds.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; default: cuda where there is one.")]
Devices = Annotated[int, typer.Option(help="GPUs to train on.")]
Seed = Annotated[int, typer.Option(help="Of text, first weights and order.")]
Tokens = Annotated[int, typer.Option(help="Tokens of text to write.", rich_help_panel=_TEXT)]
TextBatch = Annotated[int, typer.Option(help="Rows written together.", rich_help_panel=_TEXT)]
Length = Annotated[int, typer.Option(help="Tokens a row.", rich_help_panel=_TEXT)]
LongLength = Annotated[int, typer.Option(help="Tokens of a long row.", rich_help_panel=_TEXT)]
LongShare = Annotated[float, typer.Option(help="Share of the text in long rows.", rich_help_panel=_TEXT)]
TextSeconds = Annotated[float, typer.Option(help="Stop writing after this long.", rich_help_panel=_TEXT)]
Batch = Annotated[int, typer.Option(help="Rows a step and GPU.", rich_help_panel=_TRAINING)]
LossRows = Annotated[int, typer.Option(help="Positions a step at which the loss is taken.", rich_help_panel=_TRAINING)]
NumSteps = Annotated[int, typer.Option(help="Draft steps that are simulated.", rich_help_panel=_TRAINING)]
Rate = Annotated[float, typer.Option(help="Highest learning rate.", rich_help_panel=_TRAINING)]
MaxSteps = Annotated[int, typer.Option(help="Training steps.", rich_help_panel=_TRAINING)]
MaxSeconds = Annotated[
    float, typer.Option(help="End training after this long; 0: no limit.", rich_help_panel=_TRAINING)
]
RankingSteps = Annotated[int, typer.Option(help="Steps of the ranking alone.", rich_help_panel=_TRAINING)]
RankingSeconds = Annotated[float, typer.Option(help="Longest time of those; 0: no limit.", rich_help_panel=_TRAINING)]
Middle = Annotated[int | None, typer.Option(help="MLP width; default: the hidden size.", rich_help_panel=_DRAFT)]
Rank = Annotated[int | None, typer.Option(help="Of the ranking; default: hidden size / 8.", rich_help_panel=_DRAFT)]
Candidates = Annotated[int, typer.Option(help="Tokens that get exact logits.", rich_help_panel=_DRAFT)]


def train_draft(
    target: Target,
    output: Output,
    stages: Stages = "text,train,ranking",
    resume: Resume = False,
    device: Device = None,
    devices: Devices = 1,
    seed: Seed = 0,
    tokens: Tokens = 16_000_000,
    text_batch: TextBatch = 4096,
    length: Length = 513,
    long_length: LongLength = 1537,
    long_share: LongShare = 0.12,
    text_seconds: TextSeconds = 3600.0,
    batch: Batch = 64,
    loss_rows: LossRows = 16384,
    num_steps: NumSteps = 6,
    learning_rate: Rate = 4e-3,
    max_steps: MaxSteps = 3300,
    max_seconds: MaxSeconds = 0.0,
    ranking_steps: RankingSteps = 300,
    ranking_seconds: RankingSeconds = 0.0,
    intermediate_size: Middle = None,
    rank: Rank = None,
    candidates: Candidates = 2048,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    r"""Train a draft for a target on text that the target writes itself; needs torch ([cyan]draftsmith\[train][/cyan]).

    The draft lies in FOLDER/draft afterwards, in the layout that [cyan]build --draft[/cyan] reads.

    Example: [cyan]build-engine train-draft SmolLM2-135M-Instruct.gguf -o draft --max-seconds 600[/cyan]
    """
    from ..checkpoint.source import open_checkpoint
    from ..train.backend import check_devices, choose_device, require_torch

    chosen = _stages(stages)
    check_output(output)
    require_torch()
    chosen_device = choose_device(device)
    check_devices(devices, chosen_device)
    with open_checkpoint(target) as checkpoint:
        hidden = checkpoint.spec.hidden_size
    from ..train.plan import TrainPlan
    from ..train.run import train_draft as run
    from ..train.settings import TrainSettings

    settings = TrainSettings(
        text_tokens=tokens,
        text_batch=text_batch,
        length=length,
        long_length=long_length,
        long_share=long_share,
        text_seconds=text_seconds,
        batch=batch,
        loss_rows=loss_rows,
        num_steps=num_steps,
        step_decay=0.8,
        learning_rate=learning_rate,
        ranking_learning_rate=learning_rate / 8,
        warmup_steps=100,
        weight_decay=0.01,
        max_steps=max_steps,
        max_seconds=max_seconds,
        intermediate_size=intermediate_size if intermediate_size is not None else hidden,
        rank=rank if rank is not None else max(1, hidden // 8),
        num_candidates=candidates,
        ranking_weight=0.1,
        ranking_start=0.9,
        ranking_steps=ranking_steps,
        ranking_seconds=ranking_seconds,
        held_out_rows=192,
        save_seconds=60.0,
        seed=seed,
    )
    plan = TrainPlan(
        checkpoint=target,
        folder=output,
        settings=settings,
        device=chosen_device,
        devices=devices,
        stages=chosen,
        resume=resume,
    )
    with resumable():
        figures = run(plan, open_progress(quiet))
    if json:
        print_json({"draft": output / "draft", **figures})
    else:
        print_facts({"draft": output / "draft", **{name: str(value) for name, value in figures.items()}})


def _stages(given: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    unknown = [name for name in names if name not in STAGES]
    if unknown or not names:
        raise UsageError("--stages", expected=f"some of {', '.join(STAGES)}", found=given)
    if list(names) != sorted(set(names), key=STAGES.index):
        raise UsageError("--stages", expected=f"each once, in the order {', '.join(STAGES)}", found=given)
    return names
