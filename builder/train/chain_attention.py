"""Attention of a simulated draft step: the first step's columns, and a column of each later step (its own chain's).

The first part is flash attention, which keeps no scores; the chain's few columns join it by their softmax sums. Given
the joined result and its sum, flash attention's own backward pass yields the exact gradient of its part (as in ring
attention, arXiv 2310.01889), so no [T, T] matrix is ever stored.
"""

from typing import Any

import torch
from torch.autograd import Function
from torch.nn import functional

_aten = torch.ops.aten


def attend_chain(q: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor], scale: float) -> torch.Tensor:
    """``q`` [B, H, T, D] of step s; ``keys`` and ``values`` [B, K, T, D] of steps 0 to s -> [B, H, T, D].

    Entry e sees columns 0 to e - s of step 0 and column e - (s - j) of each step j from 1 to s. Entries e < s mean
    nothing: they see their chain alone.
    """
    step = len(keys) - 1
    group = q.shape[1] // keys[0].shape[1]
    first = [part[0].repeat_interleave(group, dim=1) for part in (keys, values)]
    if not step:
        k, v = first
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    chain = [
        torch.stack([_shift(part[j], step - j) for j in range(1, step + 1)]).repeat_interleave(group, dim=2)
        for part in (keys, values)
    ]
    result: torch.Tensor = _ChainAttention.apply(q, *first, *chain, scale)
    return result


class _ChainAttention(Function):  # type: ignore[misc]  # torch is not typed here
    """``chain_keys`` and ``chain_values`` [s, B, H, T, D] belong to the entry in their own place."""

    @staticmethod
    def forward(  # noqa: PLR0917 (torch passes them so)
        ctx: Any,
        q: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        chain_keys: torch.Tensor,
        chain_values: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        step, size = len(chain_keys), q.shape[2]
        parts = q[:, :, step:], keys[:, :, : size - step], values[:, :, : size - step]
        first, first_sum, extra = _flash(*parts, scale)
        own = torch.stack([(q * key).sum(-1, dtype=torch.float32) * scale for key in chain_keys], dim=-1)
        known = functional.pad(first_sum, (step, 0), value=-torch.inf)
        log_sum = torch.logsumexp(torch.cat([known[..., None], own], dim=-1), dim=-1)  # [B, H, T]
        result = functional.pad(first, (0, 0, step, 0)) * torch.exp(known - log_sum)[..., None]
        for index, value in enumerate(chain_values):
            result += torch.exp(own[..., index] - log_sum)[..., None] * value
        result = result.to(q.dtype)
        ctx.save_for_backward(q, keys, values, chain_keys, chain_values, own, log_sum, result, *extra)
        ctx.scale = scale
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, keys, values, chain_keys, chain_values, own, log_sum, result, *extra = ctx.saved_tensors
        step, size, scale = len(chain_keys), q.shape[2], ctx.scale
        grad_q, grad_keys, grad_values = _flash_backward(
            grad[:, :, step:],
            q[:, :, step:],
            keys[:, :, : size - step],
            values[:, :, : size - step],
            result[:, :, step:],
            log_sum[:, :, step:].contiguous(),
            extra,
            scale,
        )
        grad_q = functional.pad(grad_q, (0, 0, step, 0)).float()
        mean = (grad * result).sum(-1, dtype=torch.float32)
        grad_chain_keys, grad_chain_values = torch.empty_like(chain_keys), torch.empty_like(chain_values)
        for index, (key, value) in enumerate(zip(chain_keys, chain_values, strict=True)):
            weight = torch.exp(own[..., index] - log_sum)
            grad_chain_values[index] = weight[..., None] * grad
            grad_score = (weight * ((grad * value).sum(-1, dtype=torch.float32) - mean) * scale)[..., None]
            grad_chain_keys[index] = grad_score * q
            grad_q += grad_score * key
        behind = (0, 0, 0, step)
        return (
            grad_q.to(q.dtype),
            functional.pad(grad_keys, behind),
            functional.pad(grad_values, behind),
            grad_chain_keys,
            grad_chain_values,
            None,
        )


def _flash(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """Causal attention, the logarithm of its softmax sums [B, H, T], and what the backward pass wants besides."""
    if q.device.type == "cpu":
        result, log_sum = _aten._scaled_dot_product_flash_attention_for_cpu(q, keys, values, 0.0, True, scale=scale)
        return result, log_sum, []
    result, log_sum, _, _, _, _, seed, offset, _ = _aten._scaled_dot_product_flash_attention(
        q, keys, values, 0.0, True, False, scale=scale
    )
    return result, log_sum, [seed, offset]


def _flash_backward(  # noqa: PLR0917 (as the operators take them)
    grad: torch.Tensor,
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    result: torch.Tensor,
    log_sum: torch.Tensor,
    extra: list[torch.Tensor],
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of q, keys and values for a share of the whole softmax: ``result`` and ``log_sum`` are the whole's."""
    if q.device.type == "cpu":
        found = _aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, keys, values, result, log_sum, 0.0, True, scale=scale
        )
    else:
        found = _aten._scaled_dot_product_flash_attention_backward(
            *(grad, q, keys, values, result, log_sum, None, None, q.shape[2], keys.shape[2], 0.0, True, *extra),
            scale=scale,
        )
    grad_q, grad_keys, grad_values = found
    return grad_q, grad_keys, grad_values


def _shift(x: torch.Tensor, places: int) -> torch.Tensor:
    """Entry e gets what entry e - ``places`` had; zeros before."""
    return functional.pad(x, (0, 0, places, 0))[:, :, : x.shape[2]] if places else x
