"""``build-engine fit-vocabulary``: a ranking for a speculative vocabulary, in closed form, without a GPU."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from .output import JsonOption, QuietOption, open_progress, print_facts, print_json, print_table
from .paths import check_file, check_text_file, to_path

if TYPE_CHECKING:
    from ..vocabulary.fit import FitOptions, FittedRanking

_MEASURED = (512, 1024, 2048, 4096)

Target = Annotated[Path, typer.Argument(parser=to_path, metavar="TARGET", help="Hugging Face folder or GGUF file.")]
Output = Annotated[Path, typer.Option("--output", "-o", parser=to_path, metavar="FILE", help="A .safetensors file.")]
Draft = Annotated[
    Path | None,
    typer.Option(parser=to_path, metavar="FOLDER", help="EAGLE-3 draft to fit for; default: the target's own states."),
]
Rank = Annotated[int | None, typer.Option(help="Default: hidden size / 16, or / 4 with --grouped.")]
Candidates = Annotated[int, typer.Option(help="Tokens that get exact logits.")]
Text = Annotated[
    Path | None,
    typer.Option(parser=to_path, metavar="FILE", help="Text or .jsonl to fit on; default: a shipped one."),
]
Measure = Annotated[
    Path | None,
    typer.Option(parser=to_path, metavar="FILE", help="Text or .jsonl to measure on; default: a shipped one."),
]
Grouped = Annotated[bool, typer.Option("--grouped", help="Rank groups of 16 similar tokens instead of tokens.")]
Prior = Annotated[bool, typer.Option("--prior", help="Add a frequency prior, if it raises recall.")]
Adaptive = Annotated[bool, typer.Option("--adaptive", help="Fit a table of candidates by the context's entropy.")]


def fit_vocabulary(
    target: Target,
    output: Output,
    draft: Draft = None,
    rank: Rank = None,
    candidates: Candidates = 2048,
    text: Text = None,
    measure: Measure = None,
    grouped: Grouped = False,
    prior: Prior = False,
    adaptive: Adaptive = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Fit the ranking of a speculative vocabulary, and measure how often it holds the head's best token.

    Example: [cyan]build-engine fit-vocabulary model.gguf --draft ./draft -o ranking.safetensors[/cyan]
    """
    from ..vocabulary.fit import FitOptions

    check_file("--output", output)
    for name, path in (("--text", text), ("--measure", measure)):
        if path is not None:
            check_text_file(name, path)
    options = FitOptions(
        rank=rank,
        num_candidates=candidates,
        grouped=grouped,
        with_prior=prior,
        is_adaptive=adaptive,
        measured=_MEASURED,
    )
    fitted, notes = _fit(target, draft, output, options, (text, measure), quiet)
    if json:
        print_json({"file": output, "draft": draft, "rank": fitted.ranking.rank, "candidates": candidates, **notes})
    else:
        _show(output, fitted)


def _fit(
    target: Path,
    draft: Path | None,
    output: Path,
    options: "FitOptions",
    texts: tuple[Path | None, Path | None],
    quiet: bool,
) -> tuple["FittedRanking", dict[str, Any]]:
    from ..checkpoint.source import open_checkpoint
    from ..package.fingerprint import hash_checkpoint
    from ..vocabulary.files import make_facts, save_ranking
    from ..vocabulary.fit import choose_rank, fit_seen, see_text
    from ..vocabulary.passages import read_documents

    progress = open_progress(quiet)
    documents, held_out = (None if path is None else read_documents(path) for path in texts)
    with open_checkpoint(target) as checkpoint:
        if draft is None:  # a draft's head may be narrower
            spec = checkpoint.spec
            choose_rank(options, vocab_size=spec.vocab_size, hidden_size=spec.hidden_size)
        sha256 = hash_checkpoint(target, progress)
        opened = None if draft is None else _open_draft(draft, checkpoint, sha256)
        seen = see_text(checkpoint, opened, documents, held_out, progress)
        fitted = fit_seen(seen, options, progress)
    notes: dict[str, Any] = {
        "recall": fitted.recall,
        "measured": [recall.to_dict() for recall in fitted.recalls],
        "prior_weight": fitted.prior_weight,
        "adaptive": None if fitted.adaptive is None else fitted.adaptive.to_dict(),
        "mean_candidates": fitted.mean_candidates,
    }
    facts = make_facts(sha256, "" if draft is None else draft.name, len(seen.head), notes)
    save_ranking(output, fitted.ranking, facts)
    return fitted, notes


def _open_draft(path: Path, target: Any, sha256: str) -> Any:
    """An EAGLE-3 draft whose head has the whole vocabulary."""
    from ..draft.checkpoint import DraftCheckpoint
    from ..draft.match import check_match
    from ..draft.open import open_draft

    opened = open_draft(path, target=target.spec)
    if not isinstance(opened, DraftCheckpoint):
        raise UsageError("--draft", expected="an EAGLE-3 draft", found="a language model", where=str(path))
    check_match(opened, target, sha256)
    if opened.target_ids is not None:
        found = f"a head of {len(opened.target_ids):,} tokens of its own"
        raise UsageError("--draft", expected="a head of the whole vocabulary", found=found, where=str(path))
    return opened


def _show(output: Path, fitted: "FittedRanking") -> None:
    facts: dict[str, object] = {"ranking": output, "rank": fitted.ranking.rank}
    if fitted.ranking.prior is not None:
        facts["prior weight"] = fitted.prior_weight
    if fitted.adaptive is not None:
        facts["adaptive k"] = f"{list(fitted.adaptive.num_candidates)}, {fitted.mean_candidates:,.0f} in the mean"
    print_facts(facts)
    rows = [[r.task, r.num_candidates, r.num_positions, f"{r.recall:.3f}", f"{r.mass:.3f}"] for r in fitted.recalls]
    print_table(["task", "candidates", "positions", "top-1 held", "mass held"], rows)
