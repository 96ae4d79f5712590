"""Plain decoding, one stream: draftsmith INT8 beside transformers, onnxruntime-genai and llama.cpp, in one run.

Peers live in virtual environments of their own; ``benchmarks/install_peers FOLDER`` makes them. One that is not there
is left out, with the reason. All run the same weights from the same prompt, one after the other in every round.

    python benchmarks/peers.py --peers FOLDER
"""

import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftsmith.model_repo.runtime.loading import read_manifest
from peer_models import make_genai_folder, make_hf_folder, make_q8_gguf
from prompts import STORY
from report import interleave, paired_ratio, print_header, print_table, spread
from setting import WORK, encode, engine_folder, find_checkpoint, make_parser
from workers import Worker


@dataclass(frozen=True, slots=True)
class Peer:
    """A program to measure: how its process is started and what it is fed with."""

    label: str
    kind: str
    python: Path
    make_model: Callable[[], Path]


def list_peers(options: Any) -> list[Peer]:
    """Ours first: it is what ratios refer to."""
    checkpoint = find_checkpoint(options.checkpoint)
    python = {name: options.peers / name / "bin" / "python" for name in ("transformers", "genai")}
    llama = {name: options.peers / name / "bin" / "python" for name in ("llama-amx", "llama-stock")}

    def hf_folder() -> Path:
        return make_hf_folder(checkpoint, WORK / "hf")

    def genai_folder() -> Path:
        return make_genai_folder(hf_folder(), WORK / "genai-int8", python["genai"])

    def q8_gguf() -> Path:
        return make_q8_gguf(checkpoint, WORK / "model.Q8_0.gguf")

    peers = [
        Peer(f"draftsmith {p}", "draftsmith", Path(sys.executable), lambda p=p: engine_folder(options, p))  # type: ignore[misc]
        for p in options.precision
    ]
    peers.append(Peer("transformers FP32", "transformers", python["transformers"], hf_folder))
    peers.append(Peer("onnxruntime-genai int8", "genai", python["genai"], genai_folder))
    peers.append(Peer("llama.cpp Q8_0, AMX build", "llama", llama["llama-amx"], q8_gguf))
    peers.append(Peer("llama.cpp Q8_0, stock build", "llama", llama["llama-stock"], q8_gguf))
    return peers


def start(peers: list[Peer], threads: int) -> dict[str, Worker]:
    """The workers of the peers that are installed; says why another is left out."""
    workers: dict[str, Worker] = {}
    for peer in peers:
        if not peer.python.exists():
            print(f"left out: {peer.label} (no {peer.python}; see benchmarks/install_peers)", file=sys.stderr)
            continue
        try:
            workers[peer.label] = Worker(peer.python, peer.kind, peer.make_model(), threads)
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            print(f"left out: {peer.label} ({error})", file=sys.stderr)
    return workers


def quality(options: Any, label: str) -> str:
    """KL and top-1 that the build's quality gate found, for ours."""
    if not label.startswith("draftsmith"):
        return ""
    found = read_manifest(engine_folder(options, label.removeprefix("draftsmith "))).quality
    return ", ".join(f"{key} {value:.4g}" for key, value in found.items() if isinstance(value, float)) or "-"


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--peers", type=Path, default=WORK / "peers", help="folder that install_peers filled")
    parser.add_argument("--precision", action="append", help="of draftsmith; repeatable; default int8")
    parser.add_argument("--num-tokens", type=int, default=128, help="tokens decoded a time")
    parser.add_argument("--prompt-len", type=int, default=100, help="prompt tokens")
    options = parser.parse_args()
    options.precision = options.precision or ["int8"]
    workers = start(list_peers(options), options.threads)
    prompt = encode(engine_folder(options, options.precision[0]), STORY, options.prompt_len)
    num_tokens = options.num_tokens
    tokens = {label: worker.decode(prompt, num_tokens)[1] for label, worker in workers.items()}  # warm-up

    def measure(worker: Worker) -> Callable[[], float]:
        return lambda: (num_tokens - 1) / worker.decode(prompt, num_tokens)[0]

    print_header(
        f"Plain decoding, one stream, {options.threads} threads, {num_tokens} tokens after {len(prompt)}",
        versions={label.split(",")[0]: worker.version for label, worker in workers.items()},
    )
    figures = interleave({label: measure(worker) for label, worker in workers.items()}, rounds=options.rounds)
    for worker in workers.values():
        worker.close()
    ours, reference = next(iter(figures)), tokens.get("transformers FP32")
    rows = [
        [
            label,
            spread(values),
            f"{statistics.median(values):.0f}",
            f"{paired_ratio(figures[ours], values):.2f}",
            same_tokens(tokens[label], reference),
            quality(options, label),
        ]
        for label, values in figures.items()
    ]
    print_table(
        [
            "program",
            "tokens/s (least to most)",
            "median",
            f"{ours} / it",
            "tokens before it leaves FP32's text",
            "quality",
        ],
        rows,
    )


def same_tokens(tokens: list[int], reference: list[int] | None) -> str:
    """How many tokens agree with FP32's greedy text before the first that differs."""
    if reference is None:
        return "-"
    agree = next((i for i, (a, b) in enumerate(zip(tokens, reference, strict=False)) if a != b), len(reference))
    return f"{agree} of {len(reference)}"


if __name__ == "__main__":
    main()
