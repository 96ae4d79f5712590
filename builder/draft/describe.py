"""Facts about an opened draft for ``build-engine inspect``: plain JSON values."""

from typing import Any

from .checkpoint import DraftCheckpoint
from .formats import FORMATS
from .tensors import DraftTensors


def describe_draft(draft: DraftCheckpoint, *, has_target: bool) -> dict[str, Any]:
    """Format, spec, weights, head, ranking, choices, and what only a target could tell (``unknown``).

    ``has_target``: whether it was opened and matched with its target.
    """
    spec = draft.spec
    return {
        "path": str(draft.path),
        "kind": "draft",
        "format": draft.format,
        "format_title": FORMATS[draft.format].title,
        "spec": spec.to_dict(),
        "weights": _describe_weights(draft),
        "head": {
            "rows": spec.head_vocab_size,
            "vocab_size": spec.vocab_size,
            "own": spec.own_head,
            "mapped": draft.target_ids is not None,
        },
        "ranking": _describe_ranking(draft),
        "target_sha256": draft.target_sha256,
        "choices": list(draft.choices),
        "unknown": [] if has_target else _list_unknown(draft),
    }


def _describe_weights(draft: DraftCheckpoint) -> dict[str, Any]:
    if not isinstance(draft.weights, DraftTensors):
        return {}
    tensors = draft.weights
    return {"tensors": len(tensors.shapes), "bytes": tensors.num_bytes, "bytes_by_type": tensors.types}


def _describe_ranking(draft: DraftCheckpoint) -> dict[str, Any] | None:
    ranking = draft.ranking
    if ranking is None:
        return None
    return {"rank": ranking.rank, "num_candidates": ranking.num_candidates, "is_exact": ranking.is_exact}


def _list_unknown(draft: DraftCheckpoint) -> list[str]:
    """What is not known without the target, a sentence each."""
    unknown = ["whether the draft fits your target (its sizes, its checksum)"]
    if not draft.spec.feature_layers:
        unknown.append("which layers of the target it reads: the format's default depends on their number")
    if not draft.spec.own_embedding:
        unknown.append("its embedding, which is the target's")
    if not draft.spec.own_head:
        unknown.append("its head, which is the target's")
    if draft.target_sha256 is None:
        unknown.append("the target it was trained for: the file holds no checksum")
    return unknown
