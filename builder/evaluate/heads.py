"""The engines of a comparison of heads: one target and one draft, whose head ranks the vocabulary in several ways."""

from collections.abc import Mapping
from pathlib import Path

from ..draft.plan import DraftPlan
from ..progress import Progress
from ..vocabulary.files import load_ranking, load_subset
from .variants import Variant, write_variant
from .vocabularies import GROUPED, RANKINGS, DraftOfTarget, describe_quality

FULL = "full"


def write_heads(
    base: Path, pair: DraftOfTarget, vocabularies: Mapping[str, Path], folder: Path, progress: Progress
) -> dict[str, Path]:
    """Folders of engines by name: ``full``, and one for each of ``vocabularies`` (see ``write_vocabularies``).

    ``base``: an engine of the target with this draft, whose target is copied. Engines that are there already are kept.

    Raises:
        UsageError: ``base`` gives other layers than the draft reads.
        BuildError: writing fails.
    """
    name = pair.draft.path.name
    plans = {FULL: Variant(plan=DraftPlan(draft=pair.draft, head="full", name=name), quality={}, key=pair.draft_sha256)}
    for head, path in vocabularies.items():
        plans[head] = _read_vocabulary(head, path, pair)
    return {head: write_variant(base, folder / head, pair.target, plan, progress) for head, plan in plans.items()}


def _read_vocabulary(head: str, path: Path, pair: DraftOfTarget) -> Variant:
    """The folder's name of a vocabulary says what it was made of."""
    key = f"{pair.draft_sha256} {path.parent.name} {head}"
    if head in RANKINGS:
        ranking, facts = load_ranking(path, target_sha256=pair.target_sha256)
        plan = DraftPlan(
            draft=pair.draft,
            head="grouped" if head == GROUPED else "speculative",
            name=pair.draft.path.name,
            ranking=ranking,
        )
        return Variant(plan=plan, quality=describe_quality(facts, head), key=key)
    vocab_size = pair.target.spec.vocab_size
    ids, subset_facts = load_subset(path, vocab_size=vocab_size, target_sha256=pair.target_sha256)
    plan = DraftPlan(draft=pair.draft, head="subset", name=pair.draft.path.name, target_ids=ids)
    return Variant(plan=plan, quality=describe_quality(subset_facts, head), key=key)
