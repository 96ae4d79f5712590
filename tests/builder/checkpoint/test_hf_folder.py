"""Hugging Face folders: every family opens, values are what was written."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint

from tests.tiny_models import ARCHITECTURES, tiny_config, tiny_weights

Write = Callable[..., Path]


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "mistral"])
def test_every_family_opens_and_reads_what_was_written(tiny_checkpoint: Write, architecture: str) -> None:
    folder = tiny_checkpoint(architecture)
    with open_checkpoint(folder) as checkpoint:
        written = tiny_weights(tiny_config(architecture))
        assert set(checkpoint.weights.tensors) == set(written)
        for name, values in written.items():
            np.testing.assert_array_equal(checkpoint.weights.read(name), values)
