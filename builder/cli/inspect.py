"""``build-engine inspect``: what a checkpoint or a draft is, how large, and what building and serving it takes."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from ..plan import DEFAULT_MAX_BATCH, DEFAULT_MAX_LENGTH, MAX_BATCH_LIMIT, MAX_LENGTH_LIMIT
from ..ranges import check_range
from .output import JsonOption, megabytes, open_progress, print_facts, print_json, print_table
from .paths import to_path

if TYPE_CHECKING:
    from ..checkpoint.source import Checkpoint
    from ..draft.checkpoint import DraftCheckpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slots:
    """What the serving estimate is for."""

    max_batch: int
    max_length: int

    def __post_init__(self) -> None:
        check_range("--max-batch", self.max_batch, 1, MAX_BATCH_LIMIT)
        check_range("--max-length", self.max_length, 2, MAX_LENGTH_LIMIT)


def inspect_checkpoint(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            parser=to_path, metavar="CHECKPOINT", help="Hugging Face folder, GGUF file or a draft's folder."
        ),
    ],
    target: Annotated[
        Path | None, typer.Option(parser=to_path, help="The target of a draft: settles what the draft leaves to it.")
    ] = None,
    draft: Annotated[
        Path | None, typer.Option(parser=to_path, help="A draft of this target: the estimates count it too.")
    ] = None,
    max_batch: Annotated[int, typer.Option(help="Cache slots that the serving estimate is for.")] = DEFAULT_MAX_BATCH,
    max_length: Annotated[int, typer.Option(help="Tokens a slot holds, in the estimate.")] = DEFAULT_MAX_LENGTH,
    json: JsonOption = False,
) -> None:
    """Print a checkpoint's architecture, sizes, tokenizer and memory estimates, or what a draft is. Reads no weights.

    Example: [cyan]build-engine inspect SmolLM2-135M-Instruct.gguf[/cyan]

    Example: [cyan]build-engine inspect ./Qwen3-8B --draft ./qwen3-8b-eagle3[/cyan]
    """
    from ..draft.open import is_eagle_draft

    slots = _Slots(max_batch=max_batch, max_length=max_length)
    if target is not None and draft is not None:
        raise UsageError("--draft", expected="a target's, or --target beside a draft", found="both")
    if draft is not None:
        facts = _inspect_target(checkpoint, draft, slots)
    elif target is not None or is_eagle_draft(checkpoint):
        facts = _inspect_draft(checkpoint, target, slots)
    else:
        facts = _inspect_target(checkpoint, None, slots)
    if json:
        print_json(facts)
    elif facts.get("kind") == "draft":
        _print_draft(facts)
    else:
        _print(facts)


def _inspect_target(path: Path, draft: Path | None, slots: _Slots) -> dict[str, Any]:
    """Facts of a target, its estimates with the draft that is named."""
    from ..checkpoint.describe import describe_checkpoint
    from ..checkpoint.source import open_checkpoint

    with ExitStack() as stack:
        opened = stack.enter_context(open_checkpoint(path))
        spec = None if draft is None else _open_match(stack, draft, path, opened).spec
        return describe_checkpoint(opened, max_batch=slots.max_batch, max_length=slots.max_length, draft=spec)


def _inspect_draft(path: Path, target: Path | None, slots: _Slots) -> dict[str, Any]:
    """Facts of a draft, matched with its target where that is named; then what both take together as well."""
    from ..checkpoint.describe import describe_checkpoint, describe_estimates
    from ..checkpoint.source import open_checkpoint
    from ..draft.checkpoint import DraftCheckpoint
    from ..draft.describe import describe_draft

    with ExitStack() as stack:
        opened = stack.enter_context(open_checkpoint(target)) if target else None
        draft = _open_match(stack, path, target, opened)
        if not isinstance(draft, DraftCheckpoint):
            return describe_checkpoint(draft, max_batch=slots.max_batch, max_length=slots.max_length)
        facts = describe_draft(draft, has_target=target is not None)
        if opened is not None:
            facts["estimates"] = describe_estimates(
                opened.spec, max_batch=slots.max_batch, max_length=slots.max_length, draft=draft.spec
            )
        return facts


def _open_match(
    stack: ExitStack, path: Path, target: Path | None, opened: "Checkpoint | None"
) -> "DraftCheckpoint | Checkpoint":
    """An opened draft, matched with its target (its path and what was opened of it) where there is one."""
    from ..draft.match import check_match
    from ..draft.open import open_draft
    from ..package.fingerprint import hash_checkpoint

    draft = open_draft(path, opened.spec if opened else None)
    stack.callback(draft.weights.close)
    if opened is not None and target is not None:
        check_match(draft, opened, hash_checkpoint(target, open_progress(quiet=True)))
    return draft


def _print_draft(facts: Mapping[str, Any]) -> None:
    weights, head, ranking = facts["weights"], facts["head"], facts["ranking"]
    types = ", ".join(f"{name} {megabytes(size)}" for name, size in weights["bytes_by_type"].items())
    owner = "its own" if head["own"] else "the target's"
    mapped = ", mapped to the target's ids" if head["mapped"] else ""
    candidates = f"rank {ranking['rank']}, {ranking['num_candidates']:,} candidates" if ranking else "none"
    print_facts(
        {
            "draft": facts["path"],
            "format": facts["format_title"],
            "weights": f"{megabytes(weights['bytes'])} in {weights['tensors']} tensors ({types})",
            "head": f"{owner}, {head['rows']:,} of {head['vocab_size']:,} rows{mapped}",
            "ranking": candidates,
            "trained for": facts["target_sha256"] or "not said",
        }
    )
    print("\nspec")
    print_facts({name: _show(value) for name, value in facts["spec"].items() if value is not None}, "  ")
    for title, sentences in (("taken by default", facts["choices"]), ("unknown without --target", facts["unknown"])):
        if sentences:
            print(f"\n{title}")
            print("\n".join(f"  {sentence}" for sentence in sentences))
    if "estimates" in facts:
        _print_estimates(facts["estimates"])


def _print(facts: Mapping[str, Any]) -> None:
    weights = facts["weights"]
    types = ", ".join(f"{name} {megabytes(size)}" for name, size in weights["bytes_by_type"].items())
    print_facts(
        {
            "checkpoint": facts["path"],
            "format": facts["format"],
            "parameters": f"{weights['parameters']:,}",
            "weights": f"{megabytes(weights['bytes'])} in {weights['tensors']} tensors ({types})",
        }
    )
    for title in ("spec", "tokenizer", "generation"):
        print(f"\n{title}")
        print_facts({name: _show(value) for name, value in facts[title].items() if value is not None}, "  ")
    _print_estimates(facts["estimates"])


def _print_estimates(estimates: Mapping[str, Any]) -> None:
    title = "estimates, draft included," if estimates["has_draft"] else "estimates"
    print(f"\n{title} for {estimates['max_batch']} slots of {estimates['max_length']:,} tokens")
    print_table(
        ["  precision", "file", "build memory", "serving memory", "of which cache"],
        [
            [
                f"  {e['precision']}",
                megabytes(e["file_bytes"]),
                megabytes(e["build_peak_bytes"]),
                megabytes(e["serve_bytes"]),
                megabytes(e["cache_bytes_per_slot"] * estimates["max_batch"]),
            ]
            for e in estimates["precisions"]
        ],
    )
    if estimates["has_draft"]:
        # Keys and values are float32 in every precision.
        cache = estimates["precisions"][0]["draft_cache_bytes_per_slot"] * estimates["max_batch"]
        weights = ", ".join(
            f"{megabytes(e['draft_weight_bytes'])} in {e['precision']}" for e in estimates["precisions"]
        )
        print_facts({"of which draft's cache": megabytes(cache), "of which draft's weights": weights}, "  ")


def _show(value: object) -> str:
    """Nested values on one line; a long list of repeated words as counts."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items() if inner is not None)
    if isinstance(value, list):
        counts = dict.fromkeys(value, 0)
        for item in value:
            counts[item] += 1
        repeated = any(count > 1 for count in counts.values())
        return ", ".join(f"{count} x {item}" if repeated else str(item) for item, count in counts.items())
    return str(value)
