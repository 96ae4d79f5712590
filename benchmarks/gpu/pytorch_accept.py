"""LossyAccept's rules in plain PyTorch, for chains: all nodes at once, a dozen operators each.

They draw from torch's generator instead of keyed noise, which costs less than ours. Dimensions: B requests, N nodes, V
tokens. ``tokens`` int64 [B, N - 1] are those after node 0. Each function gives the accepted lengths and bonus tokens.
"""

from collections.abc import Callable

import torch

Decision = tuple[torch.Tensor, torch.Tensor]
Rule = Callable[[torch.Tensor, torch.Tensor], Decision]


def greedy(logits: torch.Tensor, tokens: torch.Tensor) -> Decision:
    """The argmax, or nothing."""
    return _follow(logits.argmax(-1), tokens)


def shared_noise(logits: torch.Tensor, tokens: torch.Tensor) -> Decision:
    """Exact: the argmax of log p + Gumbel noise, at temperature 1."""
    return _follow(_add_noise(logits.float()).argmax(-1), tokens)


def shared_noise_top_p(logits: torch.Tensor, tokens: torch.Tensor) -> Decision:
    """The same within the nucleus of 0.95."""
    return _follow(_add_noise(_truncate(logits.float(), 0.95)).argmax(-1), tokens)


def lenient(logits: torch.Tensor, tokens: torch.Tensor) -> Decision:
    """P' = min(1, P / 0.5)."""
    p = torch.softmax(logits.float(), -1)
    mass = _of_tokens(p, tokens)
    return _accept(p, tokens, torch.rand_like(mass) < (mass / 0.5).clamp_max(1))


def typical(logits: torch.Tensor, tokens: torch.Tensor) -> Decision:
    """A token with p > min(0.1, 0.3 exp(-H))."""
    p = torch.softmax(logits.float(), -1)
    entropy = -torch.xlogy(p, p).sum(-1)[:, :-1]
    return _accept(p, tokens, _of_tokens(p, tokens) > (0.3 * torch.exp(-entropy)).clamp_max(0.1))


def mentored(logits: torch.Tensor, tokens: torch.Tensor) -> Decision:
    """The largest P' with a divergence of at most 0.3 nats."""
    p = torch.softmax(logits.float(), -1)
    mass = _of_tokens(p, tokens).clamp(1e-7, 1 - 1e-7)
    low, high = mass, torch.ones_like(mass)
    for _ in range(20):
        middle = (low + high) / 2
        divergence = torch.xlogy(middle, middle / mass) + torch.xlogy(1 - middle, (1 - middle) / (1 - mass))
        low, high = torch.where(divergence <= 0.3, middle, low), torch.where(divergence <= 0.3, high, middle)
    return _accept(p, tokens, torch.rand_like(mass) < low)


def _of_tokens(p: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return p[:, :-1].gather(2, tokens.unsqueeze(2)).squeeze(2)


def _add_noise(scores: torch.Tensor) -> torch.Tensor:
    return scores - torch.empty_like(scores).exponential_().log_()


def _truncate(logits: torch.Tensor, top_p: float) -> torch.Tensor:
    values, order = logits.sort(-1, descending=True)
    p = torch.softmax(values, -1)
    values = values.masked_fill(p.cumsum(-1) - p >= top_p, float("-inf"))
    return torch.empty_like(logits).scatter_(2, order, values)


def _follow(drawn: torch.Tensor, tokens: torch.Tensor) -> Decision:
    """What was drawn at each node [B, N], as far as the draft agrees."""
    lengths = (drawn[:, :-1] == tokens).long().cumprod(1).sum(1)
    return lengths, drawn.gather(1, lengths.unsqueeze(1)).squeeze(1)


def _accept(p: torch.Tensor, tokens: torch.Tensor, passes: torch.Tensor) -> Decision:
    """The chain as far as it passes, then a token of p without the rejected one."""
    lengths = passes.long().cumprod(1).sum(1)
    rows = torch.arange(len(p), device=p.device)
    last = p[rows, lengths]
    rejected = torch.cat([tokens, tokens[:, :1]], 1)[rows, lengths].unsqueeze(1)
    is_rejected = (lengths < tokens.shape[1]).unsqueeze(1)
    last = last.scatter(1, rejected, torch.where(is_rejected, torch.zeros_like(last[:, :1]), last.gather(1, rejected)))
    noise = torch.empty_like(last).exponential_()
    return lengths, (last / noise).argmax(-1)
