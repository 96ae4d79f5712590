"""From what a build was asked for to the draft that is built: opened, matched with the target, with its head chosen."""

import logging
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..checkpoint.source import Checkpoint
from ..draft.checkpoint import DraftCheckpoint
from ..draft.match import check_match
from ..draft.open import open_draft
from ..draft.plan import DraftPlan
from ..draft_options import DEFAULT_CANDIDATES, DraftChoice
from ..errors import UsageError
from ..progress import Progress
from ..quantize.float_states import FloatStates
from ..spec.ranking import Ranking
from ..vocabulary.files import is_subset_file, load_ranking, load_subset
from ..vocabulary.fit import fit_draft_ranking, measure_ranking
from .locate import find_draft
from .share import share_equal_tables

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedDraft:
    """``plan``: what engines are built from. ``facts``: for ``draft.quality``. ``held_out``: what the target made of
    held-out text on the way, None where it did not run."""

    plan: DraftPlan
    facts: dict[str, Any]
    held_out: FloatStates | None = None

    @property
    def choices(self) -> list[str]:
        """What was assumed of the draft, a sentence each."""
        return self.plan.draft.choices if isinstance(self.plan.draft, DraftCheckpoint) else []


def resolve_draft(
    choice: DraftChoice, target: Checkpoint, target_sha256: str, text: str | None, progress: Progress
) -> ResolvedDraft | None:
    """Raises ``CheckpointError`` where the draft cannot be read or belongs to another target, ``UsageError`` for
    options that do not go together."""
    path = find_draft(choice, target_sha256)
    if path is None:
        return None
    draft = open_draft(path, target=target.spec)
    check_match(draft, target, target_sha256)
    if not isinstance(draft, DraftCheckpoint):
        _check_model_options(choice)
        plan = DraftPlan(draft=draft, head="full", name=path.name)
        return ResolvedDraft(plan=plan, facts={})
    draft = share_equal_tables(draft, target)
    for sentence in draft.choices:
        _LOG.info("draft %s: %s", path.name, sentence)
    return _choose_head(choice, draft, path.name, _Fitting(target, target_sha256, text, progress))


@dataclass(frozen=True, slots=True)
class _Fitting:
    """What a ranking is fitted with."""

    target: Checkpoint
    target_sha256: str
    text: str | None
    progress: Progress


def _choose_head(choice: DraftChoice, draft: DraftCheckpoint, name: str, fitting: _Fitting) -> ResolvedDraft:
    head = choice.head or _default_head(choice, draft)
    ranking: Ranking | None = None
    target_ids: npt.NDArray[np.int32] | None = None
    facts: dict[str, Any] = {}
    held_out: FloatStates | None = None
    if head in ("speculative", "grouped"):
        if draft.target_ids is not None:
            raise UsageError("--draft-head", expected="full or subset: this draft has a head of its own", found=head)
        ranking, facts, held_out = _find_ranking(choice, draft, head == "grouped", fitting)
    elif head == "subset":
        target_ids, facts = _find_subset(choice, draft, fitting)
    elif choice.vocabulary is not None:
        raise UsageError("--draft-vocabulary", expected="a head that uses it", found=f"--draft-head {head}")
    plan = DraftPlan(
        draft=draft,
        head=head,  # type: ignore[arg-type]
        ranking=ranking,
        target_ids=target_ids,
        window=choice.window,
        name=name,
    )
    return ResolvedDraft(plan=plan, facts=facts, held_out=held_out)


def _default_head(choice: DraftChoice, draft: DraftCheckpoint) -> str:
    """Its own subset where it has one, the subset that was given, else a speculative vocabulary."""
    if draft.target_ids is not None:
        return "subset"
    if choice.vocabulary is not None and is_subset_file(choice.vocabulary):
        return "subset"
    return "full" if draft.spec.own_head else "speculative"


def _find_ranking(
    choice: DraftChoice, draft: DraftCheckpoint, grouped: bool, fitting: _Fitting
) -> tuple[Ranking, dict[str, Any], FloatStates | None]:
    """The file's, the draft's own, or one that is fitted now; its recall; the target's states where it ran for that."""
    k = choice.num_candidates
    if choice.vocabulary is not None:
        ranking, facts = load_ranking(choice.vocabulary, target_sha256=fitting.target_sha256)
        return with_candidates(ranking, k), {"recall": facts.recall, "ranking": "file"}, None
    own = draft.ranking
    if own is not None and (own.groups is not None) == grouped and choice.rank in (None, own.rank):
        ranking = with_candidates(own, k)
        recall, held_out = measure_ranking(fitting.target, draft, ranking, fitting.progress)
        return ranking, {"recall": recall, "ranking": "trained"}, held_out
    fitted = fit_draft_ranking(
        fitting.target,
        draft,
        rank=choice.rank,
        num_candidates=k or DEFAULT_CANDIDATES,
        grouped=grouped,
        text=fitting.text,
        progress=fitting.progress,
    )
    return fitted.ranking, {"recall": fitted.recall, "ranking": "closed form"}, fitted.held_out


def with_candidates(ranking: Ranking, num_candidates: int | None) -> Ranking:
    """``ranking`` with another number of candidates, the same where None."""
    return ranking if num_candidates is None else replace(ranking, num_candidates=num_candidates)


def _find_subset(
    choice: DraftChoice, draft: DraftCheckpoint, fitting: _Fitting
) -> tuple[npt.NDArray[np.int32], dict[str, Any]]:
    """The draft's own, or the file's with the recall that ``choose-vocabulary`` measured."""
    if draft.target_ids is not None:
        return draft.target_ids, {}
    if choice.vocabulary is None:
        raise UsageError(
            "--draft-vocabulary",
            expected="a file of choose-vocabulary for a subset head",
            found="none",
            action="Run build-engine choose-vocabulary",
        )
    vocab_size = fitting.target.spec.vocab_size
    ids, facts = load_subset(choice.vocabulary, vocab_size=vocab_size, target_sha256=fitting.target_sha256)
    return ids, {"recall": facts.recall} if facts is not None else {}


def _check_model_options(choice: DraftChoice) -> None:
    """A language model has its own head."""
    if choice.head not in (None, "full") or choice.vocabulary is not None or choice.num_candidates is not None:
        raise UsageError(
            "--draft-head", expected="full for a language model as draft", found=choice.head or "a ranking"
        )
