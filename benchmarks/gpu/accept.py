"""LossyAccept beside plain PyTorch on one GPU, in one run: a Markdown table of microseconds a call.

    PYTHONPATH=... DRAFTSMITH_PLUGIN_KERNELS=libdraftsmith_kernels_cu13.so python benchmarks/gpu/accept.py

Each figure is the median of many replays of a CUDA graph of eight calls, which rotate among four sets of logits, so
none is warm in L2 that would be cold while serving. Chains of drafted tokens, a model's best one with probability 0.7.
"peaked" logits: a few tokens hold most of the probability, as a model's do; "flat" ones: normal numbers times two,
where tens of thousands share it. "read once": the logits' bytes by the bandwidth of a copy. Needs torch.
"""

from collections.abc import Sequence

import pytorch_accept as plain
import torch
from command import make_parser, read_options, row, write
from draftsmith.plugins.kernel_library import KernelLibrary
from draftsmith.plugins.reference.accept_step import Rule
from graph_timing import CALLS, copy_bandwidth, describe_machine, time_call
from our_accept import Choice, OurAccept

REQUESTS, NODES, VOCAB = 32, 8, 151_936
SETS = 4
RULES: Sequence[tuple[str, Choice, plain.Rule]] = (
    ("exact, greedy", Choice(temperature=0.0), plain.greedy),
    ("exact, shared noise", Choice(), plain.shared_noise),
    ("exact, shared noise, top-p 0.95", Choice(top_p=0.95), plain.shared_noise_top_p),
    ("lenient 0.5", Choice(rule=Rule.LENIENT, first=0.5, shared_noise=False), plain.lenient),
    ("typical", Choice(rule=Rule.TYPICAL, first=0.1, second=0.3, shared_noise=False), plain.typical),
    ("mentored, 0.3 nats", Choice(rule=Rule.MENTORED_BUDGET, first=0.3, shared_noise=False), plain.mentored),
)
COLUMNS = ("logits", "rule", "ours", "of reading once", "plain PyTorch", "ours faster", "mean accepted, ours / PyTorch")


def make_logits(*, peaked: bool) -> list[torch.Tensor]:
    """float16 [B, N, V] for each set."""
    made = []
    for _ in range(SETS):
        logits = 2 * torch.randn(REQUESTS, NODES, VOCAB, device="cuda")
        if peaked:
            ids = torch.randint(0, VOCAB, (REQUESTS, NODES, 64), device="cuda")
            best = 18 - torch.cumsum(0.6 * torch.rand(ids.shape, device="cuda"), 2)
            logits = (0.75 * logits).scatter_(2, ids, best)
        made.append(logits.half())
    return made


def draft(logits: torch.Tensor) -> torch.Tensor:
    """Tokens int64 [B, N - 1] after each node but the last."""
    best = logits[:, :-1].argmax(-1)
    others = torch.randint_like(best, VOCAB)
    return torch.where(torch.rand(best.shape, device="cuda") < 0.7, best, others)


def measure(library: KernelLibrary, floor: float, *, peaked: bool, replays: int) -> list[str]:
    """The table's lines of a kind of logits."""
    logits = make_logits(peaked=peaked)
    tokens = [draft(one) for one in logits]
    lines = []
    for name, choice, rule in RULES:
        ours = OurAccept(library, logits, tokens, choice)
        ours_us = time_call(lambda index, ours=ours: ours.launch(index % SETS), replays=replays)
        plain_us = time_call(lambda index, rule=rule: rule(logits[index % SETS], tokens[index % SETS]), replays=5)
        lengths = [_mean_length(ours, index) for index in range(SETS)]
        others = [rule(one, two)[0].float().mean().item() for one, two in zip(logits, tokens, strict=True)]
        cells = [
            "peaked" if peaked else "flat",
            name,
            f"{ours_us:.1f}",
            f"{ours_us / floor:.2f}x",
            f"{plain_us:.0f}",
            f"{plain_us / ours_us:.1f}x",
            f"{sum(lengths) / SETS:.2f} / {sum(others) / SETS:.2f}",
        ]
        lines.append(row(cells))
        print(lines[-1], flush=True)
    return lines


def _mean_length(ours: OurAccept, index: int) -> float:
    ours.launch(index)
    torch.cuda.synchronize()
    if bool(ours.flags.any()):
        raise SystemExit("logits are finite, and a request is flagged")
    return float(ours.accepted_length.float().mean().item())


def main() -> None:
    given = read_options(make_parser(__doc__ or ""))
    torch.manual_seed(0)
    library = KernelLibrary(given.library)
    floor = 2 * REQUESTS * NODES * VOCAB / copy_bandwidth()
    head = [
        *describe_machine(),
        f"- {REQUESTS} requests of {NODES} nodes, V = {VOCAB:,}, float16, graphs of {CALLS} calls; "
        f"reading the logits once: {floor:.1f} us",
        "",
        row(COLUMNS),
        row(["---"] * len(COLUMNS)),
    ]
    print("\n".join(head), flush=True)
    lines = [line for peaked in (True, False) for line in measure(library, floor, peaked=peaked, replays=given.replays)]
    write([*head, *lines], given.output)


if __name__ == "__main__":
    main()
