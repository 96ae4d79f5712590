"""INT8 variants of one model: how far from FP16, how large, how fast, and the bits that activations got.

python benchmarks/quantization.py            (about 6 minutes: every variant is calibrated and built)
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from draftsmith.builder.pipeline import BuiltPackage, compile_only
from draftsmith.builder.plan import BuildPlan
from draftsmith.builder.progress import Silent
from report import interleave, paired_ratio, print_header, print_table
from setting import find_checkpoint, make_parser
from stepping import Stepper

TOKENS = (1, 2, 4, 8, 16)
HEAD = ["variant", "KL", "KL p99", "top-1", "MB", "8 / 16 / 24 bits", *(f"T={t}" for t in TOKENS), "T=8 / T=2"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What to build; the gate's limits are lifted, since bad variants are to be shown too."""

    name: str
    precision: str = "int8"
    kernels: str = "onnxruntime"
    error_budget: float | None = None

    def build(self, checkpoint: Path, folder: Path) -> BuiltPackage:
        """The engine in ``folder``."""
        precisions: Any = (self.precision,)
        plan = BuildPlan(
            checkpoint=checkpoint,
            output=folder,
            name=self.name.replace(" ", "-").replace(",", ""),
            precisions=precisions,
            kernels=self.kernels,
            error_budget=self.error_budget,
            max_kl=1e9,
            min_top1=0.0,
        )
        return compile_only(plan, Silent())[0]


VARIANTS = (
    Variant(name="fp16", precision="fp16"),
    Variant(name="own kernels", kernels="native"),
    Variant(name="search, default budget"),
    Variant(name="search, 0.01 nats", error_budget=0.01),
    Variant(name="search, no budget", error_budget=0.0),
    Variant(name="8 bits everywhere", error_budget=1e9),
)


def main() -> None:
    """Build, measure and print."""
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--cached", type=int, action="append", help="tokens in the cache; repeatable")
    parser.add_argument("--repeats", type=int, default=10, help="steps of which a figure is the median")
    parser.add_argument("--only", action="append", help="variants by name; repeatable")
    options = parser.parse_args()
    cached = options.cached or [100, 1000]
    chosen = [v for v in VARIANTS if not options.only or v.name in options.only]
    with tempfile.TemporaryDirectory(
        dir=options.repository.parent if options.repository.parent.is_dir() else None
    ) as at:
        built = {v.name: v.build(find_checkpoint(options.checkpoint), Path(at)) for v in chosen}
        print_header(f"INT8 variants, one row, {options.threads} threads (milliseconds a step, medians)")
        steppers = {n: Stepper(p.folder, options.threads, 1, max(cached)) for n, p in built.items()}
        for num_cached in cached:
            print(f"{num_cached:,} tokens cached\n")
            measure(built, steppers, num_cached, options.rounds, options.repeats)


def measure(
    built: dict[str, BuiltPackage], steppers: dict[str, Stepper], num_cached: int, rounds: int, repeats: int
) -> None:
    """One table."""

    def variant(name: str, num_tokens: int) -> Callable[[], float]:
        return lambda: steppers[name].median_ms(1, num_tokens, num_cached, repeats)

    figures = interleave({f"{n} {t}": variant(n, t) for n in built for t in TOKENS}, rounds=rounds)
    rows = []
    for name, package in built.items():
        times = [f"{median(figures[f'{name} {t}']):.1f}" for t in TOKENS]
        ratio = f"{paired_ratio(figures[f'{name} 8'], figures[f'{name} 2']):.2f}"
        rows.append([name, *describe(package), *times, ratio])
    print_table(HEAD, rows)


def describe(package: BuiltPackage) -> list[str]:
    """KL, its 99th percentile, top-1, megabytes, and how many linears take 8, 16 and 24 bits."""
    quality = package.quality
    figures = [f"{quality[k]:.4f}" if k in quality else "-" for k in ("kl_per_token", "kl_p99")]
    top1 = f"{quality['top1_agreement']:.1%}" if "top1_agreement" in quality else "-"
    bits = package.manifest.build["engine"].get("int8", {}).get("activation_bits", {})
    return [*figures, top1, f"{package.num_bytes / 1e6:.0f}", " / ".join(map(str, bits.values())) or "-"]


if __name__ == "__main__":
    main()
