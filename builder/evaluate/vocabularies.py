"""The vocabularies that heads of one draft are compared with: rankings and subsets, made once and kept as files."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..checkpoint.source import Checkpoint
from ..draft.checkpoint import DraftCheckpoint
from ..errors import UsageError
from ..package.repository import staged_folder
from ..progress import Progress
from ..quantize.text import read_shipped
from ..spec.ranking import Ranking
from ..vocabulary.candidates import RankedTokens, StaticTokens
from ..vocabulary.choose import Frequencies, choose_subset, corpus_frequencies, special_ids, target_frequencies
from ..vocabulary.files import VocabularyFacts, make_facts, save_ranking, save_subset
from ..vocabulary.fit import MAX_HELD_OUT_TOKENS, MAX_TOKENS, MEASURED, FitOptions, SeenText, fit_seen, summarize
from ..vocabulary.hidden_states import draft_head_states, read_head, run_target, target_head_states
from ..vocabulary.passages import encode_passages, read_documents
from ..vocabulary.recall import measure_recall
from .engine_facts import SCORES_ALONE

SPECULATIVE, ALONE, GROUPED = "speculative", "ranking-alone", "grouped"
FREQUENCY, PREFERENCE = "frequency", "target-preference"
RANKINGS, SUBSETS = (SPECULATIVE, ALONE, GROUPED), (FREQUENCY, PREFERENCE)
_VERSION = 1
_ALL_TEXT = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyOptions:
    """``num_candidates``: k of the rankings. ``subset_size``: tokens of a subset. ``text``: what frequencies are
    counted in, None for the shipped text (short: most of a subset then comes by id, from frequent to rare merges)."""

    num_candidates: int
    subset_size: int
    text: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftOfTarget:
    """A draft and the target that it was trained for, opened, each with its checksum."""

    target: Checkpoint
    target_sha256: str
    draft: DraftCheckpoint
    draft_sha256: str

    def check(self) -> None:
        """Raise ``UsageError`` where heads cannot be compared: the draft has a head of its own subset."""
        if self.draft.target_ids is not None:
            found = f"a head of {len(self.draft.target_ids):,} tokens of its own"
            raise UsageError("--draft", expected="a head of the whole vocabulary", found=found)


def write_vocabularies(
    pair: DraftOfTarget, options: VocabularyOptions, folder: Path, progress: Progress
) -> dict[str, Path]:
    """A file of each name in ``RANKINGS`` and ``SUBSETS``, below ``folder``; what was made of the same is kept.

    The ranking is the draft's own, or fitted in closed form where it has none; ``ranking-alone`` is the same one with
    its scores as logits; ``frequency`` is FR-Spec's subset, ``target-preference`` VocabTrim's. Each file says what
    share of the draft's most probable tokens it holds on shipped text.

    Raises:
        UsageError: the draft has a subset of its own, or a size does not suit the vocabulary.
    """
    pair.check()
    made = folder / _name_folder(pair, options)
    paths = {name: made / f"{name}.safetensors" for name in (*RANKINGS, *SUBSETS)}
    if all(path.is_file() for path in paths.values()):
        return paths
    seen, preferred = _see_text(pair, progress)
    rankings = _make_rankings(pair, options, seen, progress)
    subsets = _choose_subsets(pair, options, preferred)
    with staged_folder(made) as staged, progress.stage("measure vocabularies"):
        for name, notes in _measure_rankings(seen, rankings).items():
            save_ranking(staged / paths[name].name, rankings[name], _facts(pair, notes))
        for name, notes in _measure_subsets(seen, subsets, options.subset_size).items():
            save_subset(staged / paths[name].name, subsets[name], _facts(pair, notes))
    return paths


def _see_text(pair: DraftOfTarget, progress: Progress) -> tuple[SeenText, Frequencies]:
    """What the draft's head reads on the shipped texts, and how often the target prefers each token on the first of
    them: one pass of the target for both."""
    target, draft = pair.target, pair.draft
    documents = [{**document, "task": "calibration"} for document in read_shipped("calibration")]
    passages = encode_passages(documents, target.tokenizer, MAX_TOKENS)
    held_out = encode_passages(read_shipped("held_out"), target.tokenizer, MAX_HELD_OUT_TOKENS)
    states = run_target(target, [*passages, *held_out], draft.spec.feature_layers, progress)
    table = None if draft.spec.own_embedding else target.weights.read("model.embed_tokens.weight")
    seen = SeenText(
        fitted=draft_head_states(draft, table, states[: len(passages)], progress),
        held_out=draft_head_states(draft, table, states[len(passages) :], progress),
        head=read_head(target, draft),
    )
    return seen, target_frequencies(target_head_states(states[: len(passages)]), read_head(target, None))


def _make_rankings(
    pair: DraftOfTarget, options: VocabularyOptions, seen: SeenText, progress: Progress
) -> dict[str, Ranking]:
    own = pair.draft.ranking
    if own is not None and own.groups is None:
        ranking = replace(own, num_candidates=options.num_candidates)
    else:
        ranking = _fit(seen, options, progress, grouped=False)
    grouped = _fit(seen, options, progress, grouped=True)
    return {SPECULATIVE: ranking, ALONE: replace(ranking, is_exact=False), GROUPED: grouped}


def _fit(seen: SeenText, options: VocabularyOptions, progress: Progress, *, grouped: bool) -> Ranking:
    fit = FitOptions(rank=None, num_candidates=options.num_candidates, grouped=grouped, measured=())
    return fit_seen(seen, fit, progress).ranking


def _choose_subsets(
    pair: DraftOfTarget, options: VocabularyOptions, preferred: Frequencies
) -> dict[str, npt.NDArray[np.int32]]:
    target, kept = pair.target, special_ids(pair.target)
    documents = read_shipped("calibration") if options.text is None else read_documents(options.text)
    text = [{**document, "task": "text"} for document in documents]
    passages = encode_passages(text, target.tokenizer, MAX_TOKENS if options.text is None else _ALL_TEXT)
    frequencies = {FREQUENCY: corpus_frequencies(passages, target.spec.vocab_size), PREFERENCE: preferred}
    return {name: choose_subset(values, options.subset_size, kept) for name, values in frequencies.items()}


def _measure_rankings(seen: SeenText, rankings: Mapping[str, Ranking]) -> dict[str, dict[str, Any]]:
    """Notes of each ranking: its recall at its k, at 1 where its scores stand for logits, and at others."""
    sizes = {rankings[SPECULATIVE].num_candidates, 1, *MEASURED}
    ks = sorted(k for k in sizes if k <= len(seen.head))
    proposers = {name: RankedTokens(rankings[name]) for name in (SPECULATIVE, GROUPED)}
    found = measure_recall(seen.held_out, seen.head, proposers, ks)
    notes = {}
    for name, ranking in rankings.items():
        counted = ranking.num_candidates if ranking.is_exact else 1
        recalls = found[SPECULATIVE if name == ALONE else name]  # the same scores
        kept = [recall for recall in recalls if name == ALONE or recall.num_candidates > 1]
        notes[name] = {"recall": summarize(kept, counted)}
    return notes


def _measure_subsets(
    seen: SeenText, subsets: Mapping[str, npt.NDArray[np.int32]], size: int
) -> dict[str, dict[str, Any]]:
    """Notes of each subset: the share of best tokens that it holds."""
    found = measure_recall(seen.held_out, seen.head, {name: StaticTokens(ids) for name, ids in subsets.items()}, [size])
    return {name: {"recall": summarize(recalls, size)} for name, recalls in found.items()}


def _facts(pair: DraftOfTarget, notes: Mapping[str, Any]) -> VocabularyFacts:
    return make_facts(pair.target_sha256, pair.draft.path.name, pair.target.spec.vocab_size, notes)


def describe_quality(facts: VocabularyFacts | None, name: str) -> dict[str, Any]:
    """What ``draft.quality`` says of an engine with the vocabulary ``name``, of its file's facts."""
    alone = {SCORES_ALONE: True} if name == ALONE else {}
    return {"recall": {} if facts is None else facts.recall, **alone}


def _name_folder(pair: DraftOfTarget, options: VocabularyOptions) -> str:
    """Another name for whatever makes other files."""
    text = "" if options.text is None else hashlib.sha256(options.text.read_bytes()).hexdigest()
    facts: Sequence[object] = (
        *(_VERSION, pair.target_sha256, pair.draft_sha256),
        *(options.num_candidates, options.subset_size, text),
    )
    return f"vocabularies-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]}"
