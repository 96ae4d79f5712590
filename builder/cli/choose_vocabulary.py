"""``build-engine choose-vocabulary``: a static subset of the vocabulary for a draft's head."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from .output import JsonOption, QuietOption, open_progress, print_facts, print_json, print_table
from .paths import check_file, check_text_file, to_path

METHODS = ("frequency", "target")

Target = Annotated[Path, typer.Argument(parser=to_path, metavar="TARGET", help="Hugging Face folder or GGUF file.")]
Output = Annotated[
    Path, typer.Option("--output", "-o", parser=to_path, metavar="FILE", help="A .safetensors or .npy file.")
]
Method = Annotated[str, typer.Option(help="frequency: tokens of the text; target: tokens that the target prefers.")]
Size = Annotated[int, typer.Option(help="Tokens in the subset.")]
Text = Annotated[
    Path | None, typer.Option(parser=to_path, metavar="FILE", help="Text or .jsonl; default: a shipped one.")
]


def choose_vocabulary(
    target: Target,
    output: Output,
    method: Method = "target",
    size: Size = 32_000,
    text: Text = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Choose a static subset of the vocabulary; special and end tokens are always in it.

    Example: [cyan]build-engine choose-vocabulary model.gguf --method target --size 32000 -o subset.safetensors[/cyan]
    """
    from ..checkpoint.source import open_checkpoint
    from ..package.fingerprint import hash_checkpoint
    from ..quantize.text import read_shipped
    from ..vocabulary.candidates import StaticTokens
    from ..vocabulary.choose import (
        choose_subset,
        corpus_frequencies,
        special_ids,
        target_frequencies,
    )
    from ..vocabulary.files import make_facts, save_subset
    from ..vocabulary.fit import MAX_TOKENS, see_text, summarize
    from ..vocabulary.passages import encode_passages, read_documents
    from ..vocabulary.recall import measure_recall

    check_file("--output", output)
    if method not in METHODS:
        raise UsageError("--method", expected=" or ".join(METHODS), found=repr(method))
    if text is not None:
        check_text_file("--text", text)
    documents = read_shipped("calibration") if text is None else read_documents(text)
    progress = open_progress(quiet)
    with open_checkpoint(target) as checkpoint:
        kept, vocab_size = special_ids(checkpoint), checkpoint.spec.vocab_size
        if not len(kept) <= size <= vocab_size:
            raise UsageError("--size", expected=f"{len(kept)} to {vocab_size} tokens", found=str(size))
        sha256 = hash_checkpoint(target, progress)
        seen = see_text(checkpoint, None, documents, None, progress)
        if method == "target":
            frequencies = target_frequencies(seen.fitted, seen.head)
        else:
            one_task = [{**document, "task": "text"} for document in documents]
            limit = MAX_TOKENS if text is None else 1 << 40  # counting is cheap: all of a user's text
            frequencies = corpus_frequencies(encode_passages(one_task, checkpoint.tokenizer, limit), vocab_size)
    ids = choose_subset(frequencies, size, kept)
    recalls = measure_recall(seen.held_out, seen.head, {"": StaticTokens(ids)}, [size])[""]
    notes = {"method": method, "size": size, "recall": summarize(recalls, size)}
    save_subset(output, ids, make_facts(sha256, "", vocab_size, notes))
    if json:
        print_json({"file": output, **notes})
        return
    print_facts({"subset": output, "method": method, "tokens": f"{size:,} of {vocab_size:,}"})
    rows = [[r.task, r.num_positions, f"{r.recall:.3f}", f"{r.mass:.3f}"] for r in recalls]
    print_table(["task", "positions", "top-1 held", "mass held"], rows)
