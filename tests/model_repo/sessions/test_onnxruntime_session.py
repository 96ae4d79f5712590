"""The ONNX Runtime session: slots, runs, padding, reused buffers, refusals."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.model_repo.runtime.errors import EngineError
from draftsmith.model_repo.runtime.sessions.onnxruntime import OnnxRuntimeSession, open_session

from tests.engine_cases import (
    FloatArray,
    build_engine,
    check_row_independence,
    fill_slot,
    manifest_of,
    open_engine,
    step_inputs,
)

Write = Callable[..., Path]
CONTEXT = [5, 17, 42, 99, 3, 64, 120, 8, 31, 77]


@pytest.fixture
def session(tiny_checkpoint: Write, tmp_path: Path) -> OnnxRuntimeSession:
    return open_engine(tiny_checkpoint("llama", num_hidden_layers=2), tmp_path / "engine")


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3", "gemma3"])
def test_a_row_has_the_same_bits_alone_and_in_any_batch(
    architecture: str, precision: str, tiny_checkpoint: Write, tmp_path: Path
) -> None:
    session = open_engine(tiny_checkpoint(architecture), tmp_path / "engine", precision)  # type: ignore[arg-type]

    check_row_independence(session, np.random.default_rng(0), session.copy_slot)


def test_chunks_of_a_prompt_give_the_same_bits(session: OnnxRuntimeSession) -> None:
    tokens = np.random.default_rng(1).integers(3, 200, 60).tolist()
    whole = fill_slot(session, 0, tokens, chunk=32)

    for chunk in (1, 2, 3, 7, 16, 31):
        np.testing.assert_array_equal(fill_slot(session, 1, tokens, chunk), whole, err_msg=f"chunk {chunk}")


def test_scattered_slots_in_any_order_equal_dense_ones(session: OnnxRuntimeSession) -> None:
    rows = {slot: [t + slot for t in CONTEXT] for slot in (1, 2, 5, 7)}
    alone = {}
    for slot, tokens in rows.items():
        fill_slot(session, slot, tokens)
        alone[slot] = session.step(step_inputs([slot], [[9, 9]], [10])).logits[0].copy()

    slots = [5, 1, 2, 7]
    logits = session.step(step_inputs(slots, [[9, 9]] * 4, [10] * 4)).logits

    for row, slot in enumerate(slots):
        np.testing.assert_array_equal(logits[row], alone[slot])


def test_a_step_leaves_other_slots_alone(session: OnnxRuntimeSession) -> None:
    fill_slot(session, 3, CONTEXT)
    before = session.step(step_inputs([3], [[9]], [10])).logits.copy()
    for slot in (2, 4):
        fill_slot(session, slot, CONTEXT[::-1] * 3)

    np.testing.assert_array_equal(session.step(step_inputs([3], [[9]], [10])).logits, before)


def test_padding_leaves_no_trace(session: OnnxRuntimeSession) -> None:
    """A row of one token beside a row of eight: the next step sees one token more, not eight."""
    fill_slot(session, 0, CONTEXT)
    expected = session.step(step_inputs([0], [[50, 51]], [10])).logits[0, 1].copy()
    session.step(step_inputs([0, 1], [[50], [9] * 8], [10, 0]))

    np.testing.assert_array_equal(session.step(step_inputs([0], [[51]], [11])).logits[0, 0], expected)


def test_a_rejected_block_is_overwritten(session: OnnxRuntimeSession) -> None:
    fill_slot(session, 0, CONTEXT)
    expected = session.step(step_inputs([0], [[60]], [10])).logits.copy()
    session.step(step_inputs([0], [[1, 2, 3, 4]], [10]))

    np.testing.assert_array_equal(session.step(step_inputs([0], [[60]], [10])).logits, expected)


def test_a_copied_slot_continues_alike(session: OnnxRuntimeSession) -> None:
    fill_slot(session, 0, CONTEXT)
    session.copy_slot(0, 6, len(CONTEXT))
    logits = session.step(step_inputs([0], [[9]], [10])).logits.copy()

    np.testing.assert_array_equal(session.step(step_inputs([6], [[9]], [10])).logits, logits)


def test_logits_are_those_that_were_asked_for(session: OnnxRuntimeSession) -> None:
    inputs = step_inputs([0], [CONTEXT], [0])
    everything = session.step(inputs).logits.copy()
    some = session.step(replace(inputs, logits_index=np.array([[9, 2, 2]], np.int32))).logits

    assert some.shape == (1, 3, session.vocab_size)
    np.testing.assert_array_equal(some[0], everything[0][[9, 2, 2]])


def test_features_follow_the_rows(tiny_checkpoint: Write, tmp_path: Path) -> None:
    session = open_engine(tiny_checkpoint("llama"), tmp_path / "engine", feature_layers=(0, 1, 3))

    def features(slots: list[int], tokens: list[list[int]]) -> FloatArray:
        found = session.step(step_inputs(slots, tokens, [0] * len(slots))).features
        assert found is not None
        return found.copy()

    alone = {slot: features([slot], [[token]]) for slot, token in ((4, 9), (2, 50))}
    together = features([2, 4], [[50], [9, 7, 8]])

    assert alone[2].shape == (1, 1, 3 * 64)
    assert together.shape == (2, 3, 3 * 64)
    np.testing.assert_array_equal(together[:, 0], np.concatenate([alone[2], alone[4]])[:, 0])


def test_the_last_tokens_of_a_full_slot(session: OnnxRuntimeSession) -> None:
    tokens = np.random.default_rng(2).integers(3, 200, session.capacity).tolist()
    fill_slot(session, 0, tokens[:-1])

    alone = session.step(step_inputs([0], [tokens[-1:]], [session.capacity - 1])).logits[0, 0].copy()
    beside = session.step(step_inputs([0, 1], [tokens[-1:], [4] * 32], [session.capacity - 1, 0])).logits[0, 0]

    np.testing.assert_array_equal(alone, beside)


@pytest.mark.parametrize(("past", "count"), [(0, 33), (97, 32)])
def test_a_step_beyond_the_engine_is_refused(session: OnnxRuntimeSession, past: int, count: int) -> None:
    with pytest.raises(EngineError, match="step: expected at most 32 tokens a row and 128 with the cached ones"):
        session.step(step_inputs([0], [[5] * count], [past]))


def test_a_broken_graph_file_is_an_engine_error(tiny_checkpoint: Write, tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("llama")
    built = build_engine(checkpoint, tmp_path)
    (tmp_path / "target.onnx").write_bytes(b"not a graph")
    with open_checkpoint(checkpoint) as opened:
        manifest = manifest_of(built, opened.spec.to_dict(), 96)

    with pytest.raises(EngineError, match=r"engine: found .*target\.onnx"):
        open_session(tmp_path, manifest, num_threads=1, num_slots=1)


def test_facts(session: OnnxRuntimeSession) -> None:
    assert (session.num_slots, session.capacity, session.max_query_len, session.min_query_len) == (8, 96, 32, 2)
    session.close()
