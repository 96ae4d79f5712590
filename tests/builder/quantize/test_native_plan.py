"""The plan for our own operators: every linear is there, and compensated rounding is nearer than plain rounding."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.graph.native_linear import NativeTiedHead
from draftsmith.builder.progress import Silent
from draftsmith.builder.quantize.native import plan_native
from draftsmith.builder.quantize.rounding import compensate_rounding
from draftsmith.plugins.packing import pack_codes, pack_linear, unpack_panels

Write = Callable[..., Path]


@pytest.mark.parametrize("tied", [True, False])
def test_every_linear_has_a_plan(tied: bool, tiny_checkpoint: Write) -> None:
    path = tiny_checkpoint("llama", num_hidden_layers=2, tie_word_embeddings=tied)

    with open_checkpoint(path) as checkpoint:
        plan = plan_native(checkpoint, calibration_text="A short text.\n\nAnother one.", progress=Silent())

    kinds = ("qkv", "o", "gate_up", "down")
    assert set(plan.linears) == {f"layers.{i}.{kind}" for i in range(2) for kind in kinds} | {"head"}
    assert isinstance(plan.linears["head"], NativeTiedHead) == tied


def test_compensated_rounding_is_nearer_on_inputs_that_depend_on_each_other() -> None:
    random = np.random.default_rng(0)
    x = (random.standard_normal((500, 8)) @ random.standard_normal((8, 64))).astype(np.float32)
    weight = random.standard_normal((64, 32)).astype(np.float32)

    codes, scales = compensate_rounding(weight, x.T @ x / len(x))

    errors = []
    for packed in (pack_codes(codes.T, scales), pack_linear(weight.T)):
        rounded = unpack_panels(packed.weights)[:32, :64] * packed.scales[:32, None]
        errors.append(np.square(x @ rounded.T - x @ weight).mean())
    assert errors[0] < 0.5 * errors[1]
