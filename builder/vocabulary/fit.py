"""From a target, with a draft or without, to a ranking of its vocabulary and its worth on text it has not seen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..checkpoint.source import Checkpoint
from ..draft.checkpoint import DraftCheckpoint
from ..errors import UsageError
from ..progress import Progress
from ..quantize.float_states import FloatStates, make_float_states, read_half
from ..quantize.text import read_shipped, split_text
from ..spec.ranking import Ranking
from .adaptive import AdaptiveCandidates, fit_adaptive
from .candidates import RankedTokens
from .choose import Frequencies, mean_probabilities
from .closed_form import fit_ranking, second_moment
from .grouping import fit_group_ranking, group_tokens
from .hidden_states import HeadStates, draft_head_states, read_head, run_target, target_head_states
from .passages import Document, encode_passages
from .recall import ALL_TASKS, Recall, measure_recall

FloatArray = npt.NDArray[np.float32]
MAX_TOKENS = 6144
"""Of text to fit on; the shipped one is shorter."""
MAX_HELD_OUT_TOKENS = 2048
MAX_GROUP_STATES = 6144
MAX_PRIOR_STATES = 1024
MAX_ADAPTIVE_STATES = 8192
PRIOR_WEIGHTS = (0.05, 0.1, 0.2, 0.4)


MEASURED = (256, 512, 1024, 2048, 4096)
"""Numbers of candidates whose recall is measured besides the one that is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """``rank``: None for hidden size / 16, or / 4 of groups, which are fewer rows. ``with_prior``: add the frequency
    prior where it helps. ``is_adaptive``: fit a table of k by entropy as well. ``measured``: numbers of candidates to
    report beside ``num_candidates``."""

    rank: int | None
    num_candidates: int
    grouped: bool
    with_prior: bool = False
    is_adaptive: bool = False
    measured: tuple[int, ...] = MEASURED


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedRanking:
    """``recall``: figures at ``num_candidates`` on held-out text as plain values; ``recalls``: all that was measured.

    ``prior_weight``: beta of the frequency prior, 0 where it did not help. ``mean_candidates``: the adaptive table's.
    ``held_out``: what the target made of the text that was measured on.
    """

    ranking: Ranking
    recall: dict[str, Any]
    recalls: list[Recall]
    prior_weight: float = 0.0
    adaptive: AdaptiveCandidates | None = None
    mean_candidates: float | None = None
    held_out: FloatStates | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenText:
    """States to fit on and to measure on, and the ``head`` [V, d] that reads them.

    ``target``: the target's own states on the text to measure on, where it ran for this.
    """

    fitted: HeadStates
    held_out: HeadStates
    head: FloatArray
    target: FloatStates | None = None


def fit_draft_ranking(
    target: Checkpoint,
    draft: DraftCheckpoint | None,
    *,
    rank: int | None,
    num_candidates: int,
    grouped: bool,
    text: str | None,
    progress: Progress,
) -> FittedRanking:
    """The closed form on a text (None: the shipped one), measured on the shipped held-out text."""
    documents = None if text is None else split_text(text)
    seen = see_text(target, draft, documents, None, progress)
    options = FitOptions(rank=rank, num_candidates=num_candidates, grouped=grouped)
    return fit_seen(seen, options, progress)


def measure_ranking(
    target: Checkpoint, draft: DraftCheckpoint | None, ranking: Ranking, progress: Progress
) -> tuple[dict[str, Any], FloatStates]:
    """Figures of a ranking on shipped held-out text, as ``FittedRanking.recall``, and the target's states there."""
    states, head, held_out = _states(target, draft, [read_shipped("held_out")], progress)
    ks = sorted({ranking.num_candidates, *(k for k in MEASURED if k <= target.spec.vocab_size)})
    recalls = measure_recall(states[0], head, {"": RankedTokens(ranking)}, ks)[""]
    return summarize(recalls, ranking.num_candidates), held_out


def see_text(
    target: Checkpoint,
    draft: DraftCheckpoint | None,
    documents: Sequence[Document] | None,
    held_out: Sequence[Document] | None,
    progress: Progress,
) -> SeenText:
    """One pass of the target, and of the draft, over both texts; None: the shipped ones."""
    given = read_shipped("calibration") if documents is None else documents
    kept = read_shipped("held_out") if held_out is None else held_out
    one_task = [{**document, "task": "calibration"} for document in given]
    states, head, own = _states(target, draft, [one_task, kept], progress)
    return SeenText(fitted=states[0], held_out=states[1], head=head, target=own)


def choose_rank(options: FitOptions, *, vocab_size: int, hidden_size: int) -> int:
    """The rank asked for or the usual one. Raises ``UsageError`` where rank or candidates do not suit such a head."""
    rank = options.rank if options.rank is not None else max(1, hidden_size // (4 if options.grouped else 16))
    if not 1 <= rank <= hidden_size:
        raise UsageError("--rank", expected=f"1 to the hidden size {hidden_size}", found=str(rank))
    if not 1 <= options.num_candidates <= vocab_size:
        raise UsageError(
            "--candidates", expected=f"1 to the vocabulary's {vocab_size:,}", found=str(options.num_candidates)
        )
    return rank


def fit_seen(seen: SeenText, options: FitOptions, progress: Progress) -> FittedRanking:
    """Fit and measure. Raises ``UsageError`` where rank or candidates do not suit the head."""
    vocab_size, size = seen.head.shape
    rank = choose_rank(options, vocab_size=vocab_size, hidden_size=size)
    weight, table, mean = 0.0, None, None
    with progress.stage("fit ranking") as stage:
        ranking = _fit(seen.fitted, seen.head, rank, options)
        if options.with_prior:
            weight = _choose_prior(seen, rank, options)
            ranking = _with_prior(ranking, _token_prior(seen.fitted, seen.head), weight)
        if options.is_adaptive:
            table, mean = fit_adaptive(seen.fitted.first(MAX_ADAPTIVE_STATES), seen.head, ranking)
        stage.note(f"rank {rank}, {len(ranking.vocabulary):,} rows")
    ks = sorted({options.num_candidates, *(k for k in options.measured if k <= vocab_size)})
    with progress.stage("measure recall") as stage:
        recalls = measure_recall(seen.held_out, seen.head, {"": RankedTokens(ranking)}, ks)[""]
        figures = summarize(recalls, options.num_candidates)
        stage.note(f"{figures['recall']:.1%} of top-1 tokens, {figures['mass']:.1%} of the mass")
    return FittedRanking(
        ranking=ranking,
        held_out=seen.target,
        recall=figures,
        recalls=recalls,
        prior_weight=weight,
        adaptive=table,
        mean_candidates=mean,
    )


def summarize(recalls: Sequence[Recall], num_candidates: int) -> dict[str, Any]:
    """Plain values at ``num_candidates``: over all positions, and of each task."""
    chosen = [recall for recall in recalls if recall.num_candidates == num_candidates]
    whole = next(recall for recall in chosen if recall.task == ALL_TASKS)
    tasks = {one.task: {"recall": one.recall, "mass": one.mass} for one in chosen if one.task != ALL_TASKS}
    return {
        "num_candidates": num_candidates,
        "positions": whole.num_positions,
        "recall": whole.recall,
        "mass": whole.mass,
        "by_k": {str(one.num_candidates): one.recall for one in recalls if one.task == ALL_TASKS},
        "tasks": tasks,
    }


def _states(
    target: Checkpoint, draft: DraftCheckpoint | None, texts: Sequence[Sequence[Document]], progress: Progress
) -> tuple[list[HeadStates], FloatArray, FloatStates]:
    """Of each text the states, the target running once over all of them; the head; the target's states on the last.

    The target's weights are as FP16 holds them, so that its states are those that the quality gate compares with.
    """
    limits = [MAX_TOKENS, MAX_HELD_OUT_TOKENS] if len(texts) > 1 else [MAX_HELD_OUT_TOKENS]
    passages = [encode_passages(text, target.tokenizer, limit) for text, limit in zip(texts, limits, strict=True)]
    layers = () if draft is None else draft.spec.feature_layers
    everything = [one for part in passages for one in part]
    seen = run_target(target, everything, layers, progress, read=read_half(target.weights.read))
    head = read_head(target, draft)
    parts = [seen[: len(passages[0])], seen[len(passages[0]) :]][: len(texts)]
    last = make_float_states([one.passage.token_ids for one in parts[-1]], [one.hidden for one in parts[-1]])
    if draft is None:
        return [target_head_states(part) for part in parts], head, last
    table = None if draft.spec.own_embedding else target.weights.read("model.embed_tokens.weight")
    return [draft_head_states(draft, table, part, progress) for part in parts], head, last


def _fit(states: HeadStates, head: FloatArray, rank: int, options: FitOptions) -> Ranking:
    moment = second_moment(states.hidden)
    if not options.grouped:
        down, vocabulary = fit_ranking(head, moment, rank)
        return Ranking(down=down, vocabulary=vocabulary, num_candidates=options.num_candidates)
    _, vectors = fit_ranking(head, moment, max(1, head.shape[1] // 16))
    hidden = states.take(MAX_GROUP_STATES).hidden
    return fit_group_ranking(head, hidden, group_tokens(vectors), rank=rank, num_candidates=options.num_candidates)


def _choose_prior(seen: SeenText, rank: int, options: FitOptions) -> float:
    """The prior's weight with the best recall on the second half of the text, all else fitted on the first.

    On text that the ranking and the frequencies were taken from, a prior always seems to help.
    """
    half = max(1, len(seen.fitted) // 2)
    first, second = seen.fitted.first(half), seen.fitted.last(len(seen.fitted) - half).take(MAX_PRIOR_STATES)
    plain, frequency = _fit(first, seen.head, rank, options), _token_prior(first, seen.head)
    weights = (0.0, *PRIOR_WEIGHTS)
    proposers = {str(weight): RankedTokens(_with_prior(plain, frequency, weight)) for weight in weights}
    found = measure_recall(second, seen.head, proposers, [options.num_candidates])
    return max(weights, key=lambda weight: (found[str(weight)][-1].recall, found[str(weight)][-1].mass))


def _token_prior(states: HeadStates, head: FloatArray) -> Frequencies:
    return mean_probabilities(states.take(2 * MAX_PRIOR_STATES), head)


def _with_prior(ranking: Ranking, frequency: Frequencies, weight: float) -> Ranking:
    """``weight`` times the logarithm of a token's, or group's, frequency added to its scores."""
    if weight == 0:
        return ranking
    if ranking.groups is not None:
        frequency = np.where(ranking.groups >= 0, frequency[np.maximum(ranking.groups, 0)], 0).sum(axis=1)
    logs = np.log(frequency + 1e-8)
    base = np.zeros(len(logs)) if ranking.prior is None else ranking.prior
    return replace(ranking, prior=(base + weight * logs).astype(np.float32))
