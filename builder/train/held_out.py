"""Simulated acceptance on rows that training never saw: what a greedy chain of drafts would have got accepted."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import torch

from .batches import entry_chances
from .draft_model import DraftModel
from .generation import ASSISTANT
from .objective import MAX_LOGITS
from .target_model import TargetModel
from .text import TrainingText

Hits = npt.NDArray[np.bool_]
NUM_STEPS = 7
ROWS_AT_A_TIME = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutResult:
    """``greedy_by_step``: share of drafts of step s equal to the text, given that those before were (greedy answers).
    ``accepted_length``: mean drafts accepted of a chain of seven, the bonus token not counted. ``shared_by_step``:
    1 - total variation to the target at temperature 1, over all text. ``num_starts``: chains that were counted."""

    greedy_by_step: list[float]
    accepted_length: float
    shared_by_step: list[float]
    num_starts: int

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values."""
        return asdict(self)

    def describe(self) -> str:
        """One line."""
        greedy = " ".join(f"{value:.3f}" for value in self.greedy_by_step)
        shared = " ".join(f"{value:.3f}" for value in self.shared_by_step)
        return f"accepted {self.accepted_length:.3f} of {NUM_STEPS}; greedy {greedy}; shared {shared}"


@torch.no_grad()  # type: ignore[untyped-decorator]
def measure_held_out(target: TargetModel, model: DraftModel, texts: Sequence[TrainingText]) -> HeldOutResult:
    """Run the draft over ``texts`` with the text's own tokens in the chain."""
    survivors, starts = np.zeros(NUM_STEPS), 0
    shared, entries = np.zeros(NUM_STEPS), np.zeros(NUM_STEPS)
    for part in (part for text in texts for part in _parts(text)):
        hits, overlap = _compare(target, model, part)
        is_valid = entry_chances(part) > 0
        for step in range(NUM_STEPS):
            shared[step] += (overlap[step] * is_valid)[:, step:].sum()
            entries[step] += is_valid[:, step:].sum()
        counted, alive = _chains(part, hits)
        starts += counted
        survivors += alive
    before = np.concatenate([[starts], survivors[:-1]])
    return HeldOutResult(
        greedy_by_step=(survivors / np.maximum(1, before)).tolist(),
        accepted_length=float(survivors.sum() / max(1, starts)),
        shared_by_step=(shared / np.maximum(1, entries)).tolist(),
        num_starts=int(starts),
    )


def _parts(text: TrainingText) -> Iterator[TrainingText]:
    """A few rows at a time."""
    for first in range(0, len(text.lengths), ROWS_AT_A_TIME):
        yield text.take(np.arange(first, min(first + ROWS_AT_A_TIME, len(text.lengths))))


def _compare(target: TargetModel, model: DraftModel, text: TrainingText) -> tuple[Hits, npt.NDArray[np.float32]]:
    """Whether each step's first choice is the text's token, and shared probability: [steps, B, T - 1] each."""
    ids = torch.from_numpy(text.token_ids.astype(np.int64)).to(target.device)
    output = target.run(ids[:, :-1])
    with torch.autocast(target.device.type, target.dtype, enabled=target.dtype != torch.float32):
        heads = model.unroll(target.embed(ids[:, 1:]), output.features, NUM_STEPS)
    aims = torch.roll(output.hidden, -1, dims=1).flatten(0, 1)
    wanted = torch.zeros_like(ids[:, 1:])
    wanted[:, :-1] = ids[:, 2:]
    shape = (NUM_STEPS, wanted.numel())
    hits, overlap = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape)
    rows = max(1, MAX_LOGITS // 4 // len(target.head))
    for start in range(0, wanted.numel(), rows):
        span = slice(start, start + rows)
        p = torch.softmax(target.logits(aims[span]).float(), -1)
        for step, head in enumerate(heads):
            logits = target.logits(head.flatten(0, 1)[span]).float()
            hits[step, span] = (logits.argmax(-1) == wanted.flatten()[span]).cpu()
            overlap[step, span] = torch.minimum(p, torch.softmax(logits, -1)).sum(-1).cpu()
    return hits.view(NUM_STEPS, *wanted.shape).numpy(), overlap.view(NUM_STEPS, *wanted.shape).numpy()


def _chains(text: TrainingText, hits: Hits) -> tuple[int, npt.NDArray[np.float64]]:
    """Chains that start in greedy answers: how many, and how many are alive after each step [steps]."""
    size = hits.shape[2]
    index = np.arange(size)[None, :]
    is_start = np.zeros((len(text.lengths), size), bool)
    is_start[:, :-1] = text.roles[:, 2:] == ASSISTANT
    is_start &= (text.temperatures[:, None] == 0) & (index + 2 + NUM_STEPS <= text.lengths[:, None])
    alive, survivors = is_start.copy(), np.zeros(NUM_STEPS)
    for step in range(NUM_STEPS):
        moved = np.zeros_like(alive)
        moved[:, : size - step] = hits[step][:, step:]
        alive &= moved
        survivors[step] = alive.sum()
    return int(is_start.sum()), survivors
