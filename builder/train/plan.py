"""A training run: its target, its folder, what it does and where; and the target as that run needs it."""

from dataclasses import dataclass
from pathlib import Path

from ..checkpoint.source import Checkpoint
from .backend import choose_formats
from .settings import TrainSettings
from .target_model import TargetModel


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


def load_target(checkpoint: Checkpoint, plan: TrainPlan) -> TargetModel:
    """The target on the plan's device."""
    formats = choose_formats(plan.device)
    return TargetModel(
        checkpoint.spec,
        checkpoint.weights.read,
        device=plan.device,
        dtype=formats.linears,
        head_dtype=formats.head,
        max_length=-(-plan.settings.max_length // 128) * 128,
    )
