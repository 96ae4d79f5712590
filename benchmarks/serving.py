"""What Triton and gRPC cost: one stream against the engine in process, many streams against one, start-up to ready.

The engine in process runs in a process of its own, and only one of the two computes at a time. Plain decoding.

    python benchmarks/serving.py --precision int8
"""

import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from draftsmith.builder.serve import ServeOptions, ServerProcess
from draftsmith.client import Client
from prompts import ARTICLE, STORY
from report import interleave, paired_ratio, print_header, print_table, spread
from setting import encode, engine_folder, make_parser
from workers import Worker

LOCAL, SERVED = "in process, 1 stream", "Triton + gRPC, 1 stream"


def stream_times(client: Client, prompt: list[int], num_tokens: int) -> tuple[float, float]:
    """When the first and the last token arrived."""
    times = []
    with client.stream(input_ids=prompt, max_tokens=num_tokens, end_ids=(), speculate=False) as stream:
        for chunk in stream:
            times += [time.perf_counter()] * bool(chunk.token_ids)
    return times[0], times[-1]


def together(client: Client, prompts: list[list[int]], num_tokens: int) -> float:
    """Tokens a second of one stream a prompt, all at once, the prompts' prefill included."""
    start = time.perf_counter()
    with ThreadPoolExecutor(len(prompts)) as pool:
        ends = list(pool.map(lambda prompt: stream_times(client, prompt, num_tokens)[1], prompts))
    return len(prompts) * num_tokens / (max(ends) - start)


def measure_start(options: ServeOptions, rounds: int) -> list[float]:
    """Seconds from starting Triton to every model ready."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        with ServerProcess(options):
            seconds.append(time.perf_counter() - start)
    return seconds


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--precision", default="int8", help="of the package")
    parser.add_argument("--num-tokens", type=int, default=128, help="tokens a stream")
    parser.add_argument("--streams", type=int, default=16, help="streams at once")
    parser.add_argument("--starts", type=int, default=3, help="times the server is started")
    options = parser.parse_args()
    folder = engine_folder(options, options.precision)
    serving = ServeOptions(
        repository=options.repository,
        models=(folder.parent.name,),
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        num_threads=options.threads,
        stop_grace_s=2.0,
    )
    print_header(f"Serving, {options.precision}, {options.threads} threads, {options.num_tokens} tokens a stream")
    starts = measure_start(serving, options.starts)
    print(f"- start-up to ready: {spread(starts)} s\n", flush=True)
    worker = Worker(Path(sys.executable), "draftsmith", folder, options.threads)
    with ServerProcess(serving) as server, Client(server.grpc_url, timeout=600.0) as client:
        figures = compare(worker, client, folder, options)
    worker.close()
    print_figures(figures, options.streams)


def compare(worker: Worker, client: Client, folder: Path, options: object) -> dict[str, list[float]]:
    """Tokens a second of each way, round by round."""
    num_tokens, num_streams = options.num_tokens, options.streams  # type: ignore[attr-defined]
    words = encode(folder, f"{STORY} {ARTICLE}")
    prompts = [words[i * 5 : i * 5 + 32] for i in range(num_streams)]

    def served() -> float:
        first, last = stream_times(client, prompts[0], num_tokens)
        return (num_tokens - 1) / (last - first)

    ways: dict[str, Callable[[], float]] = {
        LOCAL: lambda: (num_tokens - 1) / worker.decode(prompts[0], num_tokens)[0],
        SERVED: served,
        "Triton + gRPC, 1 stream with prefill": lambda: together(client, prompts[:1], num_tokens),
        f"Triton + gRPC, {num_streams} streams with prefill": lambda: together(client, prompts, num_tokens),
    }
    for way in ways.values():  # warm-up
        way()
    return interleave(ways, rounds=options.rounds)  # type: ignore[attr-defined]


def print_figures(figures: dict[str, list[float]], num_streams: int) -> None:
    """The table and the two ratios that the project promises."""
    rows = [[name, spread(values), f"{statistics.median(values):.0f}"] for name, values in figures.items()]
    print_table(["way", "tokens/s (least to most)", "median"], rows)
    many, one = (figures[f"Triton + gRPC, {n} stream{'s' * (n > 1)} with prefill"] for n in (num_streams, 1))
    print(f"- Triton and gRPC cost {1 - paired_ratio(figures[SERVED], figures[LOCAL]):.1%} at one stream")
    print(f"- {num_streams} streams give {paired_ratio(many, one):.2f} x one stream")


if __name__ == "__main__":
    main()
