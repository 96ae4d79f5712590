"""SpecVocabHead beside other heads on one GPU, in one run: a Markdown table of microseconds a call.

    PYTHONPATH=... DRAFTSMITH_PLUGIN_KERNELS=libdraftsmith_kernels_cu13.so python benchmarks/gpu/head.py

Each figure is the median of many replays of a CUDA graph of eight calls. Hidden rows and ranking weights rotate among
eight copies, so nothing is warm in L2 that would be cold while serving. "correlated" rows are a common one plus 0.3
noise, as rows of a tree level are. "floor": the bytes that must be read (fp16 ranking, W_down, the head's rows that any
row chose), by the bandwidth of a copy. "recall": the share of fp16's candidates that an 8-bit ranking chooses too.
Needs torch (memory, events, and the heads to compare with).
"""

import torch
from command import make_parser, read_options, row, write
from draftsmith.plugins.kernel_library import HeadPath, KernelLibrary
from graph_timing import Call, copy_bandwidth, describe_machine, time_call
from head_weights import Shape, Weights, make_rows, make_weights
from our_head import OurHead
from pytorch_heads import full_head, rank, ranked_head, static_head

K, OUT = 2048, 10
GROUP = 16
SHAPES = (
    Shape(name="Qwen3-8B", num_vocab=151_936, hidden_size=4096, rank=256),
    Shape(name="Llama-3-8B", num_vocab=128_256, hidden_size=4096, rank=256),
    Shape(name="Gemma-3-270M", num_vocab=262_144, hidden_size=640, rank=40),
    Shape(name="SmolLM2-135M", num_vocab=49_152, hidden_size=576, rank=36),
)
ROWS = ((1, False), (4, True), (10, True), (10, False), (16, True), (60, True))
COLUMNS = (
    "shape",
    "M",
    "ours fp16",
    "int8 ranking",
    "fp8 ranking",
    f"grouped by {GROUP}",
    "ours, general path",
    "full head",
    "static 32k",
    "plain PyTorch",
    "torch.compile",
    "floor",
    "recall int8 / fp8",
)


class Measurement:
    """One shape with so many rows: checked first, then timed."""

    def __init__(self, library: KernelLibrary, weights: Weights, num_rows: int, *, correlated: bool) -> None:
        self._library, self._weights = library, weights
        self._hidden = make_rows(weights.shape, num_rows, correlated=correlated)
        kind = "correlated" if correlated else "independent" if num_rows > 1 else ""
        self.title = [weights.shape.name, f"{num_rows} {kind}".strip()]

    def ours(self, ranking: str = "float16", group_size: int = 1, path: HeadPath = HeadPath.AUTO) -> OurHead:
        """Our head in one of its forms."""
        return OurHead(
            self._library,
            self._weights,
            self._hidden,
            k=K,
            num_outputs=OUT,
            ranking=ranking,
            group_size=group_size,
            path=path,
        )

    def check(self) -> None:
        """Ours gives what plain PyTorch gives; ``SystemExit`` otherwise."""
        ours = self.ours()
        ours.launch(0)
        wanted = ranked_head(self._weights, self._hidden, k=K, num_outputs=OUT)(0)
        torch.cuda.synchronize()
        for name, found, expected in (
            ("logits", ours.logits, wanted.logits),
            ("log-sum-exp", ours.log_sum_exp, wanted.log_sum_exp),
            ("best tokens", ours.ids[:, 0].float(), wanted.ids[:, 0].float()),
        ):
            same = torch.isclose(found, expected, atol=2e-2).float().mean().item()
            if same < 0.7:  # rounding decides who is among the candidates at the threshold, and which of two is best
                raise SystemExit(f"{self.title}: other {name} than PyTorch's in {1 - same:.0%} of places")

    def floor_bytes(self) -> int:
        """What a head must read: the ranking, W_down, the rows of the head that any row chose, and the rows."""
        shape, hidden = self._weights.shape, self._hidden[0]
        read = len(rank(hidden, self._weights.down[0], self._weights.rankings[0], K).unique())
        numbers = shape.rank * (shape.num_vocab + shape.hidden_size) + (read + len(hidden)) * shape.hidden_size
        return 2 * numbers

    def find_recall(self, ranking: str) -> float:
        """Share of fp16's candidates that are chosen with the ranking in another type."""
        wanted, found = self.ours().choose(0), self.ours(ranking).choose(0)
        shared = [torch.isin(one, other).float().mean() for one, other in zip(wanted, found, strict=True)]
        return torch.stack(shared).mean().item()

    def time(self, *, replays: int, compiled: bool) -> list[float]:
        """Microseconds a call, in the order of ``COLUMNS``; NaN where torch.compile is left out."""
        weights, hidden = self._weights, self._hidden
        calls: list[Call] = [
            self.ours().launch,
            self.ours("int8").launch,
            self.ours("float8_e4m3").launch,
            self.ours(group_size=GROUP).launch,
            self.ours(path=HeadPath.GENERAL).launch,
            full_head(weights, hidden),
            static_head(weights, hidden),
            ranked_head(weights, hidden, k=K, num_outputs=OUT),
        ]
        times = [time_call(call, replays=replays) for call in calls]
        if not compiled:
            return [*times, float("nan")]
        return [*times, time_call(ranked_head(weights, hidden, k=K, num_outputs=OUT, compiled=True), replays=replays)]


def measure(library: KernelLibrary, shape: Shape, bandwidth: float, *, replays: int, compiled: bool) -> list[str]:
    """The table's lines of a shape."""
    weights = make_weights(shape)
    lines = []
    for num_rows, correlated in ROWS:
        one = Measurement(library, weights, num_rows, correlated=correlated)
        one.check()
        times = [*one.time(replays=replays, compiled=compiled), one.floor_bytes() / bandwidth]
        recall = " / ".join(f"{one.find_recall(kind):.2%}" for kind in ("int8", "float8_e4m3"))
        lines.append(row([*one.title, *(f"{value:.1f}" for value in times), recall]))
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = make_parser(__doc__ or "")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    given = read_options(parser)
    torch.manual_seed(0)
    bandwidth = copy_bandwidth()
    lines = [
        *describe_machine(),
        f"- copy: {bandwidth / 1e6:.2f} TB/s read and written; k = {K}, out = {OUT}; microseconds a call",
        "",
        row(COLUMNS),
        row(["---"] * len(COLUMNS)),
    ]
    print("\n".join(lines), flush=True)
    library = KernelLibrary(given.library)
    for shape in SHAPES:
        lines += measure(library, shape, bandwidth, replays=given.replays, compiled=not given.no_compile)
    write(lines, given.output)


if __name__ == "__main__":
    main()
