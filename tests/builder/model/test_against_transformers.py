"""The numbers of a spec equal what transformers makes of the same config."""

from typing import Any

import pytest
from draftsmith.builder.model import read_model_spec

from tests.tiny_models import tiny_config

transformers = pytest.importorskip("transformers")

CASES: list[tuple[str, dict[str, Any]]] = [
    ("mistral", {}),
    ("qwen2", {"use_sliding_window": True, "max_window_layers": 1}),
    ("qwen3", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2}),
    ("gemma3", {"num_hidden_layers": 8, "sliding_window_pattern": 3}),
    ("gemma3", {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
]


@pytest.mark.parametrize(("architecture", "overrides"), CASES)
def test_layer_kinds_windows_and_ropes_agree(architecture: str, overrides: dict[str, Any]) -> None:
    values = tiny_config(architecture, **overrides)
    spec = read_model_spec(values, "config.json")
    config = transformers.AutoConfig.for_model(**values)
    if hasattr(config, "layer_types"):
        assert [f"{kind}_attention" for kind in spec.layer_kinds] == config.layer_types
    if spec.sliding_window is not None:
        assert spec.sliding_window == config.sliding_window
    rope = config.rope_parameters
    if architecture == "gemma3":
        assert spec.local_rope is not None
        assert spec.local_rope.theta == rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    assert (spec.rope.kind, spec.rope.theta) == (rope["rope_type"], rope["rope_theta"])
    assert spec.rope.factor == rope.get("factor")
