"""Names and shapes equal transformers' own state dicts, for every family and bias."""

from typing import Any

import pytest
from draftsmith.builder.model import expected_tensors, read_model_spec
from draftsmith.builder.spec.memory import count_parameters

from tests.tiny_models import tiny_config

CASES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False}),
    ("llama", {"head_dim": 32}),
    ("mistral", {}),
    ("qwen2", {}),
    ("qwen3", {"attention_bias": True}),
    ("gemma3", {}),
]


@pytest.mark.parametrize(("architecture", "overrides"), CASES)
def test_expected_tensors_are_transformers_state_dict(architecture: str, overrides: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    values = tiny_config(architecture, **overrides)
    config = transformers.AutoConfig.for_model(**values)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if values["tie_word_embeddings"]:
        expected.pop("lm_head.weight")
    assert expected_tensors(read_model_spec(values, "config.json")) == expected


@pytest.mark.parametrize(("architecture", "overrides"), CASES)
def test_parameter_counts_equal_the_tensors_sizes(architecture: str, overrides: dict[str, Any]) -> None:
    spec = read_model_spec(tiny_config(architecture, **overrides), "config.json")
    sizes = [rows * (columns[0] if columns else 1) for rows, *columns in expected_tensors(spec).values()]
    assert count_parameters(spec).total == sum(sizes)
