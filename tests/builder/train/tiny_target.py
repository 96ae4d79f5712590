"""A tiny target as training sees it: its checkpoint, the torch module, and the settings of a run of seconds."""

from pathlib import Path
from typing import Any

import torch
from draftsmith.builder.checkpoint.source import Checkpoint, open_checkpoint
from draftsmith.builder.train.settings import TrainSettings
from draftsmith.builder.train.target_model import TargetModel

from tests.tiny_models import write_tiny_checkpoint


def open_tiny_target(folder: Path, architecture: str, **overrides: Any) -> tuple[Checkpoint, TargetModel]:
    """A seeded checkpoint and its float32 module on the CPU."""
    write_tiny_checkpoint(folder, architecture, **overrides)
    checkpoint = open_checkpoint(folder)
    target = TargetModel(
        checkpoint.spec,
        checkpoint.weights.read,
        device="cpu",
        dtype=torch.float32,
        head_dtype=torch.float32,
        max_length=128,
    )
    return checkpoint, target


def tiny_settings(**changes: Any) -> TrainSettings:
    """Six steps on about a thousand tokens."""
    values: dict[str, Any] = {
        "text_tokens": 1000,
        "text_batch": 16,
        "length": 73,
        "long_length": 101,
        "long_share": 0.3,
        "text_seconds": 60.0,
        "batch": 4,
        "loss_rows": 64,
        "num_steps": 3,
        "step_decay": 0.8,
        "learning_rate": 1e-3,
        "ranking_learning_rate": 5e-4,
        "warmup_steps": 2,
        "weight_decay": 0.01,
        "max_steps": 6,
        "max_seconds": 0.0,
        "intermediate_size": 48,
        "rank": 8,
        "num_candidates": 32,
        "ranking_weight": 0.1,
        "ranking_start": 0.5,
        "ranking_steps": 3,
        "ranking_seconds": 0.0,
        "held_out_rows": 4,
        "save_seconds": 0.0,
        "seed": 0,
    }
    return TrainSettings(**{**values, **changes})
