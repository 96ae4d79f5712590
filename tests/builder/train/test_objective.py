"""The chunked loss: torch's own cross-entropy is the oracle of its value and its gradients."""

import pytest
import torch
from draftsmith.builder.train import objective
from draftsmith.builder.train.objective import chunk_rows, distil, soft_cross_entropy, step_weights


@pytest.mark.parametrize("num_rows", [1, 10, 13])
def test_loss_and_gradients_are_those_of_torch(num_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "MAX_LOGITS", 64)  # chunks of three rows
    torch.manual_seed(0)
    hidden, head = torch.randn(num_rows, 6, requires_grad=True), torch.randn(17, 6, requires_grad=True)
    target, weights = 2 * torch.randn(num_rows, 17), torch.rand(num_rows)

    loss, _, _ = soft_cross_entropy(hidden, head, target, weights)
    gradients = torch.autograd.grad(1.7 * loss, (hidden, head))

    rows = torch.nn.functional.cross_entropy(hidden @ head.T, target.softmax(-1), reduction="none")
    expected = torch.autograd.grad(1.7 * (rows * weights).sum(), (hidden, head))
    torch.testing.assert_close(loss, (rows * weights).sum())
    for found, wanted in zip(gradients, expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_a_draft_equal_to_the_target_agrees_everywhere() -> None:
    torch.manual_seed(0)
    logits = torch.randn(5, 11)

    _, gradient, agrees, shared = distil(logits, logits + 3)

    torch.testing.assert_close(gradient, torch.zeros(5, 11), atol=1e-6, rtol=0)
    torch.testing.assert_close(agrees, torch.ones(5))
    torch.testing.assert_close(shared, torch.ones(5))


def test_shared_probability_by_hand() -> None:
    q, p = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[0.2, 0.2, 0.6]])

    _, _, agrees, shared = distil(q.log(), p.log())

    assert agrees.item() == 0
    assert shared.item() == pytest.approx(0.2 + 0.2 + 0.2)


def test_chunks_are_equal_where_the_count_allows() -> None:
    assert chunk_rows(16384, 49152) == 4096
    assert chunk_rows(8192, 262144) == 1024
    assert chunk_rows(0, 10) == 1


def test_step_weights_sum_to_one() -> None:
    weights = step_weights(3, 0.5)

    assert weights == pytest.approx([4 / 7, 2 / 7, 1 / 7])
