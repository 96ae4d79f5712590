"""The heads that SpecVocabHead is compared with, in PyTorch. Each function gives a call for ``time_call``."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from graph_timing import Call
from head_weights import Weights

STATIC = 32_000
"""Tokens of the static subset: FR-Spec's and EAGLE-3's usual size."""


class Found(NamedTuple):
    """``ids`` int64 and ``logits`` float32 [M, out], best first; ``log_sum_exp`` float32 [M]."""

    ids: torch.Tensor
    logits: torch.Tensor
    log_sum_exp: torch.Tensor


def rank(hidden: torch.Tensor, down: torch.Tensor, ranking: torch.Tensor, k: int) -> torch.Tensor:
    """int64 [M, k]: the tokens with the best low-rank scores, in no order."""
    return torch.topk((hidden @ down.T) @ ranking.T, k, dim=1, sorted=False).indices


def full_head(weights: Weights, hidden: list[torch.Tensor]) -> Call:
    """All logits by cuBLAS."""
    return lambda index: hidden[index] @ weights.head.T


def static_head(weights: Weights, hidden: list[torch.Tensor]) -> Call:
    """Logits of a fixed subset by cuBLAS."""
    subset = weights.head[:STATIC]
    return lambda index: hidden[index] @ subset.T


def ranked_head(
    weights: Weights, hidden: list[torch.Tensor], *, k: int, num_outputs: int, compiled: bool = False
) -> Callable[[int], Found]:
    """The same head as plain operators: two products, topk, gather, product, topk; ``compiled``: by torch.compile."""

    def step(rows: torch.Tensor, down: torch.Tensor, ranking: torch.Tensor, head: torch.Tensor) -> Found:
        chosen = rank(rows, down, ranking, k)
        candidates = head[chosen.reshape(-1)].view(len(chosen), k, -1)
        logits = torch.bmm(candidates, rows.unsqueeze(2)).squeeze(2).float()
        best = torch.topk(logits, num_outputs, dim=1)
        return Found(chosen.gather(1, best.indices), best.values, torch.logsumexp(logits, 1))

    if compiled:
        torch.compiler.reset()  # or shapes beyond the eighth would run uncompiled
    run = torch.compile(step, dynamic=False) if compiled else step
    return lambda index: run(hidden[index], weights.down[index], weights.rankings[index], weights.head)
