"""Milliseconds of a step over B rows of T tokens each, and the tokens/s that B plain streams could reach.

python benchmarks/batch_rows.py --precision int8
"""

from collections.abc import Callable
from statistics import median

from report import interleave, print_header, print_table
from setting import engine_folder, make_parser
from stepping import Stepper

ROWS = (1, 2, 4, 8, 16)
TOKENS = (1, 4)


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--precision", default="int8", help="of the package")
    parser.add_argument("--cached", type=int, default=200, help="tokens in the cache of each row")
    parser.add_argument("--repeats", type=int, default=10, help="steps of which a figure is the median")
    options = parser.parse_args()
    folder = engine_folder(options, options.precision)
    stepper = Stepper(folder, options.threads, max(ROWS), options.cached)

    def variant(num_rows: int, num_tokens: int) -> Callable[[], float]:
        return lambda: stepper.median_ms(num_rows, num_tokens, options.cached, options.repeats)

    print_header(f"Step time over B rows, {options.precision}, {options.cached} cached, {options.threads} threads")
    keys = {f"{b} {t}": (b, t) for b in ROWS for t in TOKENS}
    figures = interleave({key: variant(*facts) for key, facts in keys.items()}, rounds=options.rounds)
    rows = []
    for num_tokens in TOKENS:
        times = {b: median(figures[f"{b} {num_tokens}"]) for b in ROWS}
        rows.append([f"T={num_tokens}: ms", *(f"{times[b]:.1f}" for b in ROWS)])
        rows.append([f"T={num_tokens}: steps x rows / s", *(f"{1e3 * b / times[b]:.0f}" for b in ROWS)])
    print_table(["", *(f"B={b}" for b in ROWS)], rows)


if __name__ == "__main__":
    main()
