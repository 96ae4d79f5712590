"""Random weights of a model's head, rows to score with them, and the ranking in 8 bits."""

from dataclasses import dataclass, field

import torch
from graph_timing import CALLS

TYPES = {"float16": torch.float16, "int8": torch.int8, "float8_e4m3": torch.float8_e4m3fn}
_MOST = {"int8": 127.0, "float8_e4m3": 448.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A model's head: V, d and r."""

    name: str
    num_vocab: int
    hidden_size: int
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """float16. ``head``: [V, d]; ``down``: [r, d], ``rankings``: [V, r], one a call."""

    shape: Shape
    head: torch.Tensor
    down: list[torch.Tensor] = field(default_factory=list)
    rankings: list[torch.Tensor] = field(default_factory=list)

    def quantize(self, kind: str, num_rows: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The rankings' first rows in a type of ``TYPES``, with float32 scales [R] where it has 8 bits."""
        weights = [one[:num_rows].contiguous() for one in self.rankings]
        if kind == "float16":
            return weights, []
        scales = [one.float().abs().amax(1).clamp_min(1e-12) / _MOST[kind] for one in weights]
        scaled = [one.float() / scale[:, None] for one, scale in zip(weights, scales, strict=True)]
        if kind == "int8":
            scaled = [one.round() for one in scaled]
        return [one.to(TYPES[kind]) for one in scaled], scales


def make_weights(shape: Shape) -> Weights:
    """Gaussian weights of a shape, each row of length about 1."""
    return Weights(
        shape=shape,
        head=_random(shape.num_vocab, shape.hidden_size),
        down=[_random(shape.rank, shape.hidden_size) for _ in range(CALLS)],
        rankings=[_random(shape.num_vocab, shape.rank) for _ in range(CALLS)],
    )


def make_rows(shape: Shape, num_rows: int, *, correlated: bool) -> list[torch.Tensor]:
    """float16 [M, d] for each call; correlated rows are a common one plus 0.3 noise."""
    size = shape.hidden_size
    if not correlated:
        return [torch.randn(num_rows, size, device="cuda").half() for _ in range(CALLS)]
    common = [torch.randn(1, size, device="cuda") for _ in range(CALLS)]
    return [(one + 0.3 * torch.randn(num_rows, size, device="cuda")).half() for one in common]


def _random(rows: int, columns: int) -> torch.Tensor:
    return (torch.randn(rows, columns, device="cuda") * columns**-0.5).half()
