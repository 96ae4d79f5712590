"""What a head reads on a text: the target's hidden states, or those of a draft over the target's features.

The target runs over all passages one layer at a time, so that one layer's weights are in memory; logits are left to
those who need them, block by block.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..checkpoint.source import Checkpoint
from ..draft.checkpoint import DraftCheckpoint
from ..draft.reference import ReferenceDraft
from ..progress import Progress
from ..quantize.calibration import GROUP_TOKENS, group_sequences
from ..quantize.decoder import Decoder, Layer, ReadTensor
from ..quantize.decoder_math import rms_norm
from .passages import Passage

FloatArray = npt.NDArray[np.float32]
Index = npt.NDArray[np.int64]
DRAFT_STEPS = 3
"""Steps of a draft's chain that count: its head reads the later ones' states as often as the first's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStates:
    """A passage as the target sees it: ``hidden`` [n, d] that its head reads, ``features`` [n, F d] (F may be 0)."""

    passage: Passage
    hidden: FloatArray
    features: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadStates:
    """``hidden`` [M, d]: what a head reads at M positions.

    ``task_index`` [M] into ``tasks``. ``parent_index`` [M]: the row whose distribution the position's last token was
    drawn from, -1 where there is none (a passage's first position).
    """

    hidden: FloatArray
    tasks: tuple[str, ...]
    task_index: Index
    parent_index: Index

    def __len__(self) -> int:
        return len(self.hidden)

    def first(self, limit: int) -> "HeadStates":
        """The first ``limit`` positions; parents come before their children, so they stay."""
        return HeadStates(
            hidden=self.hidden[:limit],
            tasks=self.tasks,
            task_index=self.task_index[:limit],
            parent_index=self.parent_index[:limit],
        )

    def last(self, limit: int) -> "HeadStates":
        """The last ``limit`` positions; parents are forgotten."""
        start = len(self) - limit
        return HeadStates(
            hidden=self.hidden[start:],
            tasks=self.tasks,
            task_index=self.task_index[start:],
            parent_index=np.full(limit, -1),
        )

    def take(self, limit: int) -> "HeadStates":
        """Positions at equal distances, at most ``limit``; parents are forgotten."""
        step = max(1, -(-len(self) // limit))
        hidden = self.hidden[::step]
        return HeadStates(
            hidden=hidden,
            tasks=self.tasks,
            task_index=self.task_index[::step],
            parent_index=np.full(len(hidden), -1),
        )


def run_target(
    checkpoint: Checkpoint,
    passages: Sequence[Passage],
    feature_layers: Sequence[int],
    progress: Progress,
    *,
    read: ReadTensor | None = None,
) -> list[TargetStates]:
    """The target over every passage; ``feature_layers``: the layers whose inputs are kept.

    ``read``: its weights, None for those of the checkpoint as they are.
    """
    spec, read = checkpoint.spec, read or checkpoint.weights.read
    groups = list(group_sequences([passage.token_ids for passage in passages], GROUP_TOKENS))
    decoders = [Decoder(spec, [len(sequence) for sequence in group]) for group in groups]
    table = read("model.embed_tokens.weight")
    hidden = [table[np.concatenate(group)] * np.float32(spec.embed_scale) for group in groups]
    del table
    kept: dict[int, FloatArray] = {}
    with progress.stage("run target", total=spec.num_layers, unit="layers") as stage:
        for index in range(spec.num_layers):
            if index in feature_layers:
                kept[index] = np.concatenate(hidden)
            layer = Layer(spec, read, index)
            hidden = [decoder.forward(layer, x)[0] for decoder, x in zip(decoders, hidden, strict=True)]
            stage.advance()
        stage.note(f"{sum(map(len, hidden)):,} tokens")
    norm = read("model.norm.weight") + np.float32(spec.norm_offset)
    normed = np.concatenate([rms_norm(x, norm, spec.norm_eps) for x in hidden])
    features = np.concatenate([normed[:, :0], *(kept[index] for index in feature_layers)], axis=1)
    borders = np.cumsum([len(passage.token_ids) for passage in passages])[:-1]
    return [
        TargetStates(passage=passage, hidden=states, features=read_layers)
        for passage, states, read_layers in zip(
            passages, np.split(normed, borders), np.split(features, borders), strict=True
        )
    ]


def target_head_states(states: Sequence[TargetStates]) -> HeadStates:
    """The target's own hidden states, for a ranking of the target's vocabulary without a draft."""
    return _join([(one.passage.task, [one.hidden]) for one in states])


def draft_head_states(
    draft: DraftCheckpoint, embedding: FloatArray | None, states: Sequence[TargetStates], progress: Progress
) -> HeadStates:
    """A draft's states of steps 1 to ``DRAFT_STEPS``, fed with the text's own tokens; ``embedding``: the target's."""
    reference = ReferenceDraft(draft.spec, draft.weights.read, embedding=embedding)
    chains: list[tuple[str, list[FloatArray]]] = []
    with progress.stage("run draft", total=len(states), unit="passages") as stage:
        for one in states:
            ids = one.passage.token_ids
            steps = min(DRAFT_STEPS, len(ids) - 1)
            if steps:  # the last position has no next token yet
                chain = reference.chain(ids[1:], one.features[:-1], steps)
                chains.append((one.passage.task, [np.asarray(x, np.float32) for x in chain]))
            stage.advance()
        stage.note(f"{sum(len(x) for _, chain in chains for x in chain):,} states")
    return _join(chains)


def read_head(target: Checkpoint, draft: DraftCheckpoint | None) -> FloatArray:
    """The head [rows, d] that the hidden states meet: the draft's own, or the target's rows that the draft borrows."""
    if draft is not None and draft.spec.own_head:
        return draft.weights.read("lm_head.weight")
    head = target.weights.read("model.embed_tokens.weight" if target.spec.tied_head else "lm_head.weight")
    return head if draft is None or draft.target_ids is None else head[draft.target_ids]


def _join(chains: Sequence[tuple[str, list[FloatArray]]]) -> HeadStates:
    """Chains of states by task: steps [n - j + 1, d] for j = 1, 2, ...; row i of each starts from entry i."""
    tasks = tuple(dict.fromkeys(task for task, _ in chains))
    task_index, parents, total = [], [], 0
    for task, chain in chains:
        before = -1  # first row of the step before
        for number, states in enumerate(chain):
            rows = np.arange(len(states))
            # A first step's token came from the position before; a later one's from the step before of the same chain.
            parents.append(np.where(rows > 0, total + rows - 1, -1) if number == 0 else before + rows)
            task_index.append(np.full(len(states), tasks.index(task)))
            before, total = total, total + len(states)
    return HeadStates(
        hidden=np.concatenate([states for _, chain in chains for states in chain]),
        tasks=tasks,
        task_index=np.concatenate(task_index),
        parent_index=np.concatenate(parents),
    )
