"""Rows of text to what one training step needs: features, embeddings, target logits, and which entries count."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from .generation import ASSISTANT
from .target_model import TargetModel
from .text import TrainingText

SHARE_OTHERS = 0.3
"""How often a position that the answering side did not write is drawn, relative to one that it wrote."""


@dataclass(frozen=True, slots=True)
class Batch:
    """N = B (T - 1) entries, B rows. ``embedded`` [B, T - 1, d], ``features`` [B, T - 1, 3 d]; M drawn entries:
    ``rows`` int64 [M] into the flat N, ``entries`` int64 [M] (place in the row), ``target`` logits [M, V],
    ``counts`` float32 [M]: 1, or 0 for a filler."""

    embedded: torch.Tensor
    features: torch.Tensor
    rows: torch.Tensor
    entries: torch.Tensor
    target: torch.Tensor
    counts: torch.Tensor


def draw_rows(texts: Sequence[TrainingText], num_tokens: int, *, seed: int, step: int, rank: int) -> TrainingText:
    """About ``num_tokens`` tokens of different rows (where there are as many) of one of the texts.

    A function of seed, step and process alone; all processes draw from the same text, a text as often as it is large.
    """
    sizes = np.array([text.num_tokens for text in texts], np.float64)
    text = texts[np.random.default_rng((seed, step)).choice(len(texts), p=sizes / sizes.sum())]
    count = max(1, num_tokens // text.token_ids.shape[1])
    random = np.random.default_rng((seed, step, rank))
    return text.take(random.choice(len(text.lengths), size=count, replace=count > len(text.lengths)))


def make_batch(target: TargetModel, text: TrainingText, loss_rows: int, *, seed: int) -> Batch:
    """Run the target over ``text`` and draw ``loss_rows`` entries, the answers' more often."""
    ids = torch.from_numpy(text.token_ids.astype(np.int64)).to(target.device)
    output = target.run(ids[:, :-1])
    chances = entry_chances(text)  # [B, T - 1]
    random = np.random.default_rng((seed, 1))
    with np.errstate(divide="ignore"):
        keys = random.exponential(size=chances.shape) / chances
    order = np.argsort(keys, axis=None)[:loss_rows]
    rows = torch.from_numpy(order).to(target.device)
    counts = torch.from_numpy((chances.reshape(-1)[order] > 0).astype(np.float32)).to(target.device)
    following = torch.roll(output.hidden, -1, dims=1).flatten(0, 1)  # what position e + 1 knows; the last counts never
    return Batch(
        embedded=target.embed(ids[:, 1:]),
        features=output.features,
        rows=rows,
        entries=rows % (ids.shape[1] - 1),
        target=target.logits(following[rows]),
        counts=counts,
    )


def entry_chances(text: TrainingText) -> npt.NDArray[np.float64]:
    """Weights float64 [B, T - 1] with which entries are drawn; 0 where an entry predicts nothing that counts."""
    index = np.arange(text.token_ids.shape[1] - 1)[None, :]
    predicted = np.zeros((len(text.lengths), index.shape[1]), np.uint8)
    predicted[:, :-1] = text.roles[:, 2:]
    chances = np.where(predicted == ASSISTANT, 1.0, SHARE_OTHERS)
    return np.where(index + 2 < text.lengths[:, None], chances, 0.0)
