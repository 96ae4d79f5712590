"""The text stage: rows of usual length, then long ones, each to a file that a resumed run keeps."""

import logging
import time
from pathlib import Path

import numpy as np
import torch

from ..checkpoint.source import open_checkpoint
from ..errors import BuildError
from ..progress import Progress, Stage
from .generation import Script, TextWriter
from .plan import TrainPlan, load_target
from .target_model import TargetModel
from .text import Beginnings, TrainingText, build_script, draw_plan, find_beginnings, join_texts, select_rows

log = logging.getLogger(__name__)
_FILES = ("text.npz", "text-long.npz")


def write_texts(plan: TrainPlan, progress: Progress) -> None:
    """Text of the target's own to the plan's folder; what is there already is kept by a resumed run."""
    settings = plan.settings
    usual, long = _FILES
    wanted = [(usual, settings.length, 1 - settings.long_share), (long, settings.long_length, settings.long_share)]
    missing = [text for text in wanted if text[2] and not (plan.resume and (plan.folder / text[0]).is_file())]
    if missing:
        with open_checkpoint(plan.checkpoint) as checkpoint:
            target, script = load_target(checkpoint, plan), build_script(checkpoint)
            beginnings = find_beginnings(checkpoint.tokenizer, str(checkpoint.path))
        with progress.stage("writing text", total=settings.text_tokens, unit="tokens") as stage:
            texts = _Texts(plan, target, script, beginnings, stage)
            for name, length, share in missing:
                texts.write(length, share).save(plan.folder / name)


def has_texts(folder: Path) -> bool:
    """Whether ``write_texts`` left any there."""
    return any((folder / name).is_file() for name in _FILES)


def load_texts(folder: Path) -> list[TrainingText]:
    """What ``write_texts`` left."""
    return [TrainingText.load(folder / name) for name in _FILES if (folder / name).is_file()]


class _Texts:
    """Writes text of one length after the other with one target."""

    def __init__(
        self, plan: TrainPlan, target: TargetModel, script: Script, beginnings: Beginnings, stage: Stage
    ) -> None:
        self._plan, self._target, self._script, self._beginnings, self._stage = plan, target, script, beginnings, stage

    def write(self, length: int, share: float) -> TrainingText:
        """``share`` of the plan's text in rows of ``length`` tokens, and of its time."""
        settings = self._plan.settings
        batch = max(1, settings.text_batch * settings.length // length)
        writer = TextWriter(self._target, self._script, batch=batch, length=length, seed=settings.seed)
        random = np.random.default_rng((settings.seed, length))
        texts: list[TrainingText] = []
        started, done = time.monotonic(), 0
        while done < share * settings.text_tokens:
            if texts and time.monotonic() - started > share * settings.text_seconds:
                break
            drawn = draw_plan(self._script, self._beginnings, batch, length, random)
            texts.append(select_rows(writer.write(drawn), self._script, drawn.temperatures[2].numpy()))
            if not texts[-1].num_tokens and len(texts) > 3:
                where = str(self._plan.folder)
                raise BuildError("training text", expected="rows of use", found="degenerate ones", where=where)
            done += texts[-1].num_tokens
            self._stage.advance(texts[-1].num_tokens)
            log.info("text of %d: %d tokens, %.0f s", length, done, time.monotonic() - started)
        del writer
        if self._plan.device == "cuda":
            torch.cuda.empty_cache()
        return join_texts(texts)
