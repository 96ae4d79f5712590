"""Which linears suffer most from INT8 weights, for engines whose plan does not say."""

from collections.abc import Mapping
from typing import Any

from ..checkpoint.source import Checkpoint
from ..progress import Progress
from .calibration import Calibration, SeenLinear
from .choice import observe, weight_kl
from .text import encode_documents, read_shipped

RANKING_TOKENS = 512


def rank_linears(checkpoint: Checkpoint, progress: Progress) -> dict[str, Mapping[str, Any]]:
    """Estimated KL per token of rounding each linear's weights alone, by joined name."""
    table: dict[str, Mapping[str, Any]] = {}

    def show(name: str, seen: SeenLinear) -> None:
        table[name] = {"activation_kl": 0.0, "weight_kl": weight_kl(seen.weight, observe(seen), exponent=0.0)}

    def show_layer(index: int, linears: dict[str, SeenLinear]) -> None:
        for kind, seen in linears.items():
            show(f"layers.{index}.{kind}", seen)

    sequences = encode_documents(read_shipped("calibration"), checkpoint.tokenizer, RANKING_TOKENS)
    Calibration(checkpoint, sequences).run(lambda seen: show("head", seen), show_layer, progress)
    return table
