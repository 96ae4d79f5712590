"""The loss of training-time test: soft cross-entropy with the target over the whole vocabulary, never kept whole.

Logits are made a chunk of rows at a time and their gradient is turned into the hidden states' at once, so memory holds
one chunk. The same pass counts how often the draft's and the target's first choice agree and how much probability they
share (1 - total variation, the acceptance of a sampled draft).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import Function

Distilled = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
MAX_LOGITS = 1 << 28
"""Logits of a chunk."""


def distil(logits: torch.Tensor, target: torch.Tensor) -> Distilled:
    """Of ``logits`` and ``target`` [M, V]: cross-entropy [M], its gradient [M, V] in the logits' dtype, whether the
    first choices agree [M], shared probability [M]; float32 inside."""
    wide, aim = logits.float(), target.float()
    log_sum = torch.logsumexp(wide, dim=-1, keepdim=True)
    q = torch.exp(wide - log_sum)
    p = torch.exp(aim - torch.logsumexp(aim, dim=-1, keepdim=True))
    loss = log_sum[:, 0] - (p * wide).sum(-1)
    agrees = wide.argmax(-1) == aim.argmax(-1)
    return loss, (q - p).to(logits.dtype), agrees.float(), torch.minimum(p, q).sum(-1)


class _SoftCrossEntropy(Function):  # type: ignore[misc]  # torch is not typed here
    """Sum of weighted cross-entropies; gradients of ``hidden`` and, where it wants one, of ``head``."""

    @staticmethod
    def forward(  # noqa: PLR0917 (torch passes them so)
        ctx: Any,
        hidden: torch.Tensor,
        head: torch.Tensor,
        target: torch.Tensor,
        weights: torch.Tensor,
        core: Callable[[torch.Tensor, torch.Tensor], Distilled],
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rows = chunk_rows(len(hidden), len(head))
        low, wide = hidden.to(target.dtype), head.to(target.dtype)
        needs_head = ctx.needs_input_grad[1]
        grad_hidden = torch.empty(hidden.shape, device=hidden.device, dtype=torch.float32)
        grad_head = torch.zeros(head.shape, device=head.device, dtype=torch.float32) if needs_head else None
        loss, agreed, shared = (torch.empty(len(hidden), device=hidden.device) for _ in range(3))
        for start in range(0, len(hidden), rows):
            part = slice(start, start + rows)
            loss[part], grad, agreed[part], shared[part] = core(low[part] @ wide.T, target[part])
            grad_hidden[part] = grad @ wide
            if grad_head is not None:
                grad_head += grad.T @ (low[part] * weights[part, None].to(low.dtype))
        grad_hidden *= weights[:, None]
        ctx.save_for_backward(grad_hidden, grad_head)
        ctx.mark_non_differentiable(agreed, shared)
        return (loss * weights).sum(), agreed, shared

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        grad_hidden, grad_head = ctx.saved_tensors
        return grad_hidden * grad, None if grad_head is None else grad_head * grad, None, None, None


def chunk_rows(num_rows: int, vocab_size: int) -> int:
    """Rows of one chunk: equal chunks where the count allows, so that a compiled core sees one shape."""
    most = max(1, MAX_LOGITS // vocab_size)
    least = max(1, -(-num_rows // most))
    for count in range(least, 2 * least):
        if num_rows % count == 0:
            return max(1, num_rows // count)
    return most


def soft_cross_entropy(
    hidden: torch.Tensor,
    head: torch.Tensor,
    target: torch.Tensor,
    weights: torch.Tensor,
    core: Callable[[torch.Tensor, torch.Tensor], Distilled] = distil,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weighted sum of cross-entropies to the target, agreement [M] and shared probability [M].

    ``hidden`` float32 [M, d], ``head`` [V, d], ``target`` logits [M, V] in the dtype that products are taken in,
    ``weights`` float32 [M]. ``core`` is ``distil`` or a compiled form of it.
    """
    loss, agreed, shared = _SoftCrossEntropy.apply(hidden, head, target, weights, core)
    return loss, agreed, shared


def step_weights(num_steps: int, decay: float) -> list[float]:
    """``decay`` ** s of the steps, normed to a sum of one."""
    raw = [decay**step for step in range(num_steps)]
    return [value / sum(raw) for value in raw]
