"""Milliseconds of a step over T tokens of one row, at 100 and 1,000 cached tokens: what makes speculation pay.

python benchmarks/decode_speed.py --precision fp16 --precision int8
"""

from collections.abc import Callable
from statistics import median

from draftsmith.model_repo.runtime.loading import read_manifest
from report import interleave, paired_ratio, print_header, print_table
from setting import engine_folder, make_parser
from stepping import Stepper

TOKENS = (1, 2, 4, 8, 16)


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__, rounds=7)
    parser.add_argument("--precision", action="append", help="repeatable; default fp16 and int8")
    parser.add_argument("--cached", type=int, action="append", help="tokens in the cache; repeatable")
    parser.add_argument("--repeats", type=int, default=10, help="steps of which a figure is the median")
    options = parser.parse_args()
    precisions, cached = options.precision or ["fp16", "int8"], options.cached or [100, 1000]
    folders = {name: engine_folder(options, name) for name in precisions}
    steppers = {name: Stepper(folder, options.threads, 1, max(cached)) for name, folder in folders.items()}

    def variant(name: str, num_tokens: int, num_cached: int) -> Callable[[], float]:
        return lambda: steppers[name].median_ms(1, num_tokens, num_cached, options.repeats)

    print_header(f"Step time, one row, {options.threads} threads (milliseconds, medians)")
    keys = {f"{p} {s} {t}": (p, t, s) for p in precisions for s in cached for t in TOKENS}
    figures = interleave({key: variant(*facts) for key, facts in keys.items()}, rounds=options.rounds)
    rows = []
    for name in precisions:
        for num_cached in cached:
            of = {t: figures[f"{name} {num_cached} {t}"] for t in TOKENS}
            times = [f"{median(of[t]):.1f}" for t in TOKENS]
            ratio = f"{paired_ratio(of[8], of[2]):.2f}"
            rows.append([name, f"{num_cached:,}", *times, ratio, f"{1e3 / median(of[2]):.0f}"])
    head = ["precision", "cached", *(f"T={t}" for t in TOKENS), "T=8 / T=2", "plain tokens/s"]
    print_table(head, rows)
    print_quality({name: read_manifest(folder).quality for name, folder in folders.items()})


def print_quality(found: dict[str, dict[str, object]]) -> None:
    """What each build's quality gate measured."""
    for name, quality in found.items():
        figures = ", ".join(f"{key} {value}" for key, value in quality.items() if isinstance(value, int | float | str))
        print(f"- {name}: {figures or 'no quality gate (it is the reference)'}")


if __name__ == "__main__":
    main()
