"""Logits of a checkpoint from transformers, in float32 with eager attention: the oracle of graph tests."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

FloatArray = npt.NDArray[np.float32]


class Oracle:
    """A loaded transformers model."""

    def __init__(self, folder: Path) -> None:
        self._torch = pytest.importorskip("torch")
        self._transformers = pytest.importorskip("transformers")
        self._model: Any = self._transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=self._torch.float32, attn_implementation="eager"
        ).eval()

    def logits(self, tokens: Sequence[int]) -> FloatArray:
        """[len(tokens), V], one forward pass over the whole sequence."""
        return self._run(tokens)[0]

    def layer_inputs(self, tokens: Sequence[int]) -> list[FloatArray]:
        """The residual stream before each layer, [len(tokens), d] each."""
        return self._run(tokens)[1]

    def stepwise_logits(self, tokens: Sequence[int]) -> FloatArray:
        """[len(tokens), V], token by token over transformers' own cache (dynamic rope differs between the two)."""
        cache = {self._cache_keyword(): self._transformers.DynamicCache()}
        rows = []
        with self._torch.no_grad():
            for token in tokens:
                result = self._model(self._torch.tensor([[token]]), use_cache=True, **cache)
                rows.append(result.logits[0, 0].numpy())
        return np.stack(rows)

    def _cache_keyword(self) -> str:
        """Renamed in transformers 5.2x."""
        return "cache" if "cache" in inspect.signature(self._model.forward).parameters else "past_key_values"

    def _run(self, tokens: Sequence[int]) -> tuple[FloatArray, list[FloatArray]]:
        with self._torch.no_grad():
            result = self._model(self._torch.tensor([list(tokens)]), output_hidden_states=True)
        return result.logits[0].numpy(), [hidden[0].numpy() for hidden in result.hidden_states]


def assert_close(found: FloatArray, expected: FloatArray, tolerance: float = 2e-4) -> None:
    """Largest difference relative to the largest logit (issue 3: 2e-4 in FP32)."""
    assert found.shape == expected.shape
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    assert error < tolerance, f"relative error {error:.1e}"
