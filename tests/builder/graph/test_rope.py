"""Rope tables against transformers' formulas and hand-worked values."""

from typing import Any

import numpy as np
import pytest
from draftsmith.builder.graph.rope import rope_tables
from draftsmith.builder.spec.target import RopeSpec

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"factor": 4.0, "original_max_position_embeddings": 64}
CASES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 2.5},
    "llama3": {"rope_type": "llama3", **LLAMA3},
    "yarn": {"rope_type": "yarn", **YARN},
    "yarn, betas": {"rope_type": "yarn", **YARN, "beta_fast": 8.0, "beta_slow": 2.0},
    "yarn, factor given": {"rope_type": "yarn", **YARN, "attention_factor": 0.7},
    "yarn, mscale": {"rope_type": "yarn", **YARN, "mscale": 0.7, "mscale_all_dim": 1.3},
    "yarn, not truncated": {"rope_type": "yarn", **YARN, "truncate": False},
}
RENAMED = {"rope_type": "kind", "original_max_position_embeddings": "original_max_positions"}


def make_spec(values: dict[str, Any]) -> RopeSpec:
    return RopeSpec(theta=10000.0, **{RENAMED.get(name, name): value for name, value in values.items()})


def transformers_frequencies(values: dict[str, Any], *, max_positions: int, seq_len: int) -> tuple[Any, float]:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    rope_utils = pytest.importorskip("transformers.modeling_rope_utils")
    config = transformers.LlamaConfig(
        hidden_size=64,
        num_attention_heads=2,
        max_position_embeddings=max_positions,
        rope_parameters={"rope_theta": 10000.0, **values},
    )
    frequencies, factor = rope_utils.ROPE_INIT_FUNCTIONS[values["rope_type"]](
        config, torch.device("cpu"), seq_len=seq_len
    )
    return frequencies.numpy().astype(np.float64), factor


@pytest.mark.parametrize("case", CASES)
def test_scaled_tables_equal_transformers(case: str) -> None:
    frequencies, factor = transformers_frequencies(CASES[case], max_positions=256, seq_len=300)

    cos, sin = rope_tables(make_spec(CASES[case]), 32, 300)

    angles = np.arange(300)[:, None] * frequencies
    np.testing.assert_allclose(cos, np.cos(angles) * factor, atol=1e-4)
    np.testing.assert_allclose(sin, np.sin(angles) * factor, atol=1e-4)


@pytest.mark.parametrize("position", [0, 62, 63, 64, 100, 299])
def test_dynamic_rows_are_those_of_a_sequence_that_ends_there(position: int) -> None:
    values = {"rope_type": "dynamic", "factor": 3.0}
    frequencies, _ = transformers_frequencies(values, max_positions=64, seq_len=position + 1)

    cos, _ = rope_tables(make_spec({**values, "original_max_positions": 64}), 32, 300)

    np.testing.assert_allclose(cos[position], np.cos(position * frequencies), atol=1e-4)


def test_default_tables_by_hand() -> None:
    cos, sin = rope_tables(RopeSpec(kind="default", theta=100.0), 4, 3)

    np.testing.assert_allclose(cos, [[1, 1], [np.cos(1), np.cos(0.1)], [np.cos(2), np.cos(0.2)]])
    np.testing.assert_allclose(sin, [[0, 0], [np.sin(1), np.sin(0.1)], [np.sin(2), np.sin(0.2)]])


def test_a_kind_without_its_factor_is_refused() -> None:
    with pytest.raises(ValueError, match="rope kind linear needs factor"):
        rope_tables(RopeSpec(kind="linear", theta=1e4), 8, 4)
