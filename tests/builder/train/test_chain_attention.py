"""Attention of simulated draft steps: values and gradients are those of one dense softmax under autograd."""

import pytest
import torch
from draftsmith.builder.train.chain_attention import attend_chain

SCALE = 0.3


@pytest.mark.parametrize("step", [0, 1, 3])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (3, 3), (4, 1)])
def test_values_and_gradients_are_those_of_a_dense_softmax(step: int, heads: int, kv_heads: int) -> None:
    size = 11
    generator = torch.Generator().manual_seed(step)

    def draw(count: int) -> torch.Tensor:
        return torch.randn(2, count, size, 8, generator=generator, requires_grad=True)

    q, keys, values = draw(heads), [draw(kv_heads) for _ in range(step + 1)], [draw(kv_heads) for _ in range(step + 1)]
    grad = torch.randn(2, heads, size - step, 8, generator=generator)  # entries before the step mean nothing

    found = attend_chain(q, keys, values, SCALE)[:, :, step:]
    expected = _dense(q, keys, values)[:, :, step:]

    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    inputs = [q, *keys, *values]
    for one, other in zip(
        torch.autograd.grad(found, inputs, grad), torch.autograd.grad(expected, inputs, grad), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def _dense(q: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor]) -> torch.Tensor:
    """All columns of all steps side by side; those that an entry does not see are masked."""
    step, size, group = len(keys) - 1, q.shape[2], q.shape[1] // keys[0].shape[1]
    entry, column = torch.arange(size)[:, None], torch.arange(size)[None, :]
    visible = [column <= entry - step, *(column == entry - (step - j) for j in range(1, step + 1))]
    mask = torch.zeros(size, size * (step + 1)).masked_fill(~torch.cat(visible, 1), -1e30)
    k, v = (torch.cat(part, dim=2).repeat_interleave(group, dim=1) for part in (keys, values))
    return torch.softmax(q @ k.transpose(2, 3) * SCALE + mask, dim=-1) @ v
