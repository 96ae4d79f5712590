"""N-gram speculation against plain decoding: tokens/s and acceptance on prompts of several kinds, greedy, one stream.

Both ways must give the same text; the last column says so.

    python benchmarks/speculation.py --precision int8
"""

from collections.abc import Callable
from statistics import median
from typing import Any

from inprocess import Answer, LocalEngine
from prompts import SPECULATION
from report import interleave, paired_ratio, print_header, print_table
from setting import engine_folder, make_parser

WAYS = ("plain", "speculative")


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__, rounds=3)
    parser.add_argument("--precision", default="int8", help="of the package")
    parser.add_argument("--max-tokens", type=int, default=128, help="of an answer")
    parser.add_argument("--temperature", type=float, default=0.0, help="above 0 with a seed")
    options = parser.parse_args()
    engine = LocalEngine(engine_folder(options, options.precision), options.threads)
    sampling = {"max_tokens": options.max_tokens, "temperature": options.temperature, "seed": 1}
    answers: dict[str, Answer] = {}

    def variant(key: str, prompt: str, way: str) -> Callable[[], float]:
        def measure() -> float:
            messages = ({"role": "user", "content": prompt},)
            answers[key] = engine.generate(messages=messages, speculate=way == "speculative", **sampling)
            return answers[key].decode_speed

        return measure

    keys: dict[str, tuple[str, str]] = {}
    for kind, prompts in SPECULATION.items():
        for index, prompt in enumerate(prompts, 1):
            keys |= {f"{kind} {index} {way}": (prompt, way) for way in WAYS}
    print_header(
        f"N-gram speculation, {options.precision}, {options.threads} threads, temperature {options.temperature:g}"
    )
    figures = interleave({key: variant(key, *facts) for key, facts in keys.items()}, rounds=options.rounds)
    engine.close()
    names = [key.removesuffix(" plain") for key in keys if key.endswith(" plain")]
    head = [
        "prompt",
        "tokens",
        "plain tokens/s",
        "speculative",
        "ratio",
        "accepted / drafted",
        "tokens / step",
        "same text",
    ]
    print_table(head, [_row(name, figures, answers) for name in names])


def _row(name: str, figures: dict[str, list[float]], answers: dict[str, Any]) -> list[str]:
    plain, fast = (figures[f"{name} {way}"] for way in WAYS)
    answer = answers[f"{name} speculative"]
    rate = f" ({answer.num_accepted / answer.num_drafted:.0%})" if answer.num_drafted else ""
    same = answers[f"{name} plain"].token_ids == answer.token_ids
    return [
        name,
        str(len(answer.token_ids)),
        f"{median(plain):.1f}",
        f"{median(fast):.1f}",
        f"{paired_ratio(fast, plain):.2f}",
        f"{answer.num_accepted} / {answer.num_drafted}{rate}",
        f"{(len(answer.token_ids) - 1) / max(1, answer.num_steps):.2f}",
        "yes" if same else "NO",
    ]


if __name__ == "__main__":
    main()
