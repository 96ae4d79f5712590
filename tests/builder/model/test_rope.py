"""Rope settings: both spellings, every kind, defaults as in transformers, unknown kinds refused."""

from typing import Any

import pytest
from draftsmith.builder.errors import CheckpointError
from draftsmith.builder.model.config import Config
from draftsmith.builder.model.rope import read_rope
from draftsmith.builder.spec.target import RopeSpec

LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def read(**values: Any) -> RopeSpec:
    return read_rope(Config(values, "config.json"), default_theta=10_000.0, max_positions=4096)


@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_kind_may_be_spelled_type_or_rope_type(key: str) -> None:
    rope = read(rope_theta=5e5, rope_scaling={key: "linear", "factor": 2})
    assert rope == RopeSpec(kind="linear", theta=5e5, factor=2.0)


def test_no_scaling_is_the_default_kind() -> None:
    assert read(rope_scaling=None) == RopeSpec(kind="default", theta=10_000.0)


def test_new_spelling_carries_theta() -> None:
    assert read(rope_parameters={"rope_type": "default", "rope_theta": 1e6}) == RopeSpec(kind="default", theta=1e6)


def test_llama3_keeps_its_four_numbers() -> None:
    rope = read(rope_scaling={"rope_type": "llama3", **LLAMA3})
    assert (rope.factor, rope.low_freq_factor, rope.high_freq_factor) == (8.0, 1.0, 4.0)
    assert rope.original_max_positions == 8192


@pytest.mark.parametrize("missing", LLAMA3)
def test_llama3_without_one_of_them_is_refused(missing: str) -> None:
    with pytest.raises(CheckpointError, match=f"config key `{missing}`"):
        read(rope_scaling={"rope_type": "llama3", **{k: v for k, v in LLAMA3.items() if k != missing}})


def test_dynamic_stretches_from_the_models_own_maximum() -> None:
    assert read(rope_scaling={"type": "dynamic", "factor": 4.0}).original_max_positions == 4096


def test_yarn_defaults_are_those_of_transformers() -> None:
    rope = read(rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024})
    assert (rope.beta_fast, rope.beta_slow, rope.truncate, rope.attention_factor) == (32.0, 1.0, True, None)
    assert rope.original_max_positions == 1024


@pytest.mark.parametrize("kind", ["longrope", "su", "mrope", "proportional", "", None, 3])
def test_unknown_kinds_are_refused_by_name(kind: object) -> None:
    with pytest.raises(CheckpointError, match="config key `rope_type`: expected one of default, linear") as caught:
        read(rope_scaling={"rope_type": kind, "factor": 2.0})
    assert repr(kind) in str(caught.value)


def test_unknown_setting_is_refused_not_ignored() -> None:
    with pytest.raises(CheckpointError, match="config key `mrope_section`"):
        read(rope_scaling={"rope_type": "default", "mrope_section": [16, 24, 24]})


def test_partial_rotation_inside_the_rope_object_is_refused() -> None:
    with pytest.raises(CheckpointError, match="config key `partial_rotary_factor`"):
        read(rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5})
