"""Logits of the written graph in ONNX Runtime equal transformers'."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builder.graph.transformers_oracle import Oracle, assert_close
from tests.engine_cases import FloatArray, fill_slot, open_engine, step_inputs

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, untied": ("llama", {"tie_word_embeddings": False}),
    "llama, no groups": ("llama", {"num_key_value_heads": 4}),
    "llama, head size not d/heads": ("llama", {"head_dim": 32}),
    "llama, all biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, linear rope": ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "llama, llama3 rope": ("llama", {"rope_scaling": LLAMA3}),
    "llama, yarn": ("llama", {"rope_scaling": YARN}),
    "llama, yarn with mscale": ("llama", {"rope_scaling": {**YARN, "mscale": 0.8, "mscale_all_dim": 0.5}}),
    "mistral": ("mistral", {}),
    "qwen2": ("qwen2", {}),
    "qwen2, windows in upper layers": ("qwen2", {"use_sliding_window": True, "sliding_window": 8}),
    "qwen3": ("qwen3", {}),
    "gemma3": ("gemma3", {}),
    "gemma3, untied, grouped": ("gemma3", {"num_key_value_heads": 2, "tie_word_embeddings": False}),
}
Write = Callable[..., Path]


def draw_tokens(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(3, 200, count).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("case", CASES)
def test_prefill_and_cached_decode(case: str, tiny_checkpoint: Write, tmp_path: Path) -> None:
    architecture, overrides = CASES[case]
    folder = tiny_checkpoint(architecture, **overrides)
    session = open_engine(folder, tmp_path / "engine")
    tokens = draw_tokens(40)

    found = [fill_slot(session, 2, tokens[:30], chunk=13)]
    found += [session.step(step_inputs([2], [[t]], [n])).logits[0].copy() for n, t in enumerate(tokens[30:], 30)]

    assert_close(np.concatenate(found), Oracle(folder).logits(tokens))


def test_dynamic_rope_is_that_of_token_by_token_decoding(tiny_checkpoint: Write, tmp_path: Path) -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0}
    folder = tiny_checkpoint("llama", rope_scaling=rope, max_position_embeddings=16)
    session = open_engine(folder, tmp_path / "engine", max_length=16)
    tokens = draw_tokens(16)

    assert_close(fill_slot(session, 0, tokens), Oracle(folder).stepwise_logits(tokens))


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3", "gemma3"])
def test_ragged_batch(architecture: str, tiny_checkpoint: Write, tmp_path: Path) -> None:
    folder = tiny_checkpoint(architecture)
    session, oracle = open_engine(folder, tmp_path / "engine"), Oracle(folder)
    rows = [draw_tokens(29, seed) for seed in range(3)]
    past, counts = [21, 4, 0], [5, 8, 1]
    for row, length in enumerate(past):
        if length:
            fill_slot(session, row, rows[row][:length])

    blocks = [rows[r][n : n + c] for r, (n, c) in enumerate(zip(past, counts, strict=True))]
    logits = session.step(step_inputs([0, 1, 2], blocks, past)).logits

    for row, (length, count) in enumerate(zip(past, counts, strict=True)):
        expected = oracle.logits(rows[row][: length + count])[length:]
        assert_close(logits[row, :count], expected)


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3", "gemma3"])
def test_every_path_of_a_tree_is_its_own_sequence(architecture: str, tiny_checkpoint: Write, tmp_path: Path) -> None:
    folder = tiny_checkpoint(architecture)
    session, oracle = open_engine(folder, tmp_path / "engine"), Oracle(folder)
    context, block = draw_tokens(12), draw_tokens(6, seed=1)
    parents = [-1, 0, 0, 1, 2, 4]
    fill_slot(session, 0, context)

    logits = session.step(step_inputs([0], [block], [12], parents=parents)).logits[0]

    for leaf in range(6):
        path = [leaf]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        expected = oracle.logits(context + [block[i] for i in path])[12:]
        assert_close(logits[path], expected)


def test_a_tree_on_an_empty_slot(tiny_checkpoint: Write, tmp_path: Path) -> None:
    folder = tiny_checkpoint("llama")
    session, oracle = open_engine(folder, tmp_path / "engine"), Oracle(folder)
    block = draw_tokens(3)

    logits = session.step(step_inputs([0], [block], [0], parents=[-1, 0, 0])).logits[0]

    assert_close(logits[[0, 2]], oracle.logits([block[0], block[2]]))


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_features_are_the_inputs_of_their_layers(architecture: str, tiny_checkpoint: Write, tmp_path: Path) -> None:
    folder = tiny_checkpoint(architecture)
    session = open_engine(folder, tmp_path / "engine", feature_layers=(0, 2, 3))
    tokens = draw_tokens(7)

    outputs = session.step(step_inputs([0], [tokens], [0]))

    inputs = Oracle(folder).layer_inputs(tokens)
    assert outputs.features is not None
    assert_close(outputs.features[0], np.concatenate([inputs[0], inputs[2], inputs[3]], axis=1))


def test_fp16_storage_is_close_to_fp32(tiny_checkpoint: Write, tmp_path: Path) -> None:
    folder = tiny_checkpoint("llama")
    tokens = draw_tokens(20)

    found = fill_slot(open_engine(folder, tmp_path / "engine", "fp16"), 0, tokens)

    assert_close(found, Oracle(folder).logits(tokens), tolerance=3e-3)


def test_a_checkpoint_in_bf16_is_read_exactly(tiny_checkpoint: Write, tmp_path: Path) -> None:
    folder = tiny_checkpoint("qwen3", dtype="BF16")
    tokens = draw_tokens(20)
    found: FloatArray = fill_slot(open_engine(folder, tmp_path / "engine"), 0, tokens)

    assert_close(found, Oracle(folder).logits(tokens))
