"""Draft graphs against the NumPy draft in float64: switches, heads, trees, ragged rows, and INT8 beside FP32."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from draftsmith.builder.checkpoint.source import Checkpoint, open_checkpoint
from draftsmith.builder.draft.checkpoint import DraftCheckpoint
from draftsmith.builder.draft.plan import DraftPlan
from draftsmith.builder.draft.reference import DraftStep, ReferenceDraft
from draftsmith.builder.graph.draft_graph import DraftGraphOptions, write_draft_graphs
from draftsmith.builder.graph.draft_heads import DraftHead
from draftsmith.builder.progress import Silent
from draftsmith.builder.spec.target import RopeSpec
from draftsmith.plugins.cpu_library import find_compiler
from draftsmith.plugins.packing import round_rows

from tests.builder.graph.transformers_oracle import assert_close
from tests.engine_cases import ancestors, build_engine
from tests.tiny_drafts import DraftSteps, make_draft, make_ranking

SWITCHES: dict[str, dict[str, Any]] = {
    "plain": {},
    "biases": {"qkv_bias": True, "o_bias": True, "mlp_bias": True, "fc_bias": True},
    "norm_before_fc": {"norm_before_fc": True},
    "fc_norm": {"fc_norm": True},
    "norm_before_residual": {"norm_before_residual": True},
    "feeds_back_normed": {"feeds_back_normed": True},
    "no_head_norm": {"norms_head_input": False},
    "fed_normed_head_not": {"feeds_back_normed": True, "norms_head_input": False},
    "own_tables": {"own_embedding": True, "own_head": True},
    "gelu_scaled": {"activation": "gelu_tanh", "embed_scale": 4.9},
    "window": {"window": 3},
    "rope": {"rope": RopeSpec(kind="linear", theta=500.0, factor=2.0)},
}
TOLERANCES = {"fp32": 2e-4, "fp16": 3e-3, "int8": 1e-3}  # of the largest logit; INT8: beside rounded weights
INT8_LOSS = 0.06  # what rounding the weights of so narrow a draft costs, of the largest logit
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="needs a C compiler on x86-64 Linux")


class Oracle:
    """A draft with a head, stepped in float64; ``precision`` "int8": with weights rounded as an engine's are."""

    def __init__(self, draft: DraftCheckpoint, target: Checkpoint, precision: str = "fp32") -> None:
        spec = draft.spec
        change = round_weights if precision == "int8" else (lambda weight: weight)

        def read(name: str) -> npt.NDArray[np.float32]:
            return change(draft.weights.read(name))

        embedding = change(target.weights.read("model.embed_tokens.weight"))
        self.reference = ReferenceDraft(spec, read, embedding=embedding, dtype=np.float64)
        own = "model.embed_tokens.weight" if target.spec.tied_head else "lm_head.weight"
        self.head = read("lm_head.weight") if spec.own_head else change(target.weights.read(own))

    def logits(self, step: DraftStep) -> npt.NDArray[np.float64]:
        return np.asarray(step.head_input @ self.head.T.astype(np.float64))

    def chain(self, tokens: list[int], features: npt.NDArray[Any], length: int) -> npt.NDArray[np.float64]:
        """Logits [n - length + 1, V] of a first step over ``length`` entries and of one step an entry behind."""
        step = self.reference.prefill(np.array(tokens[:length]), features[:length])
        rows = [self.logits(step)[-1]]
        for entry in range(length, len(tokens)):
            ids, hidden = np.array(tokens[entry : entry + 1]), step.hidden_out[-1:]
            step = self.reference.step(ids, hidden, np.array([entry]), step.cache)
            rows.append(self.logits(step)[-1])
        return np.stack(rows)


def round_weights(weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """To 255 steps a row, vectors as they are."""
    if weight.ndim == 1:
        return weight
    codes, scales = round_rows(weight)
    return np.asarray(codes * scales[:, None], np.float32)


def run_chain(
    steps: DraftSteps, tokens: list[int], features: npt.NDArray[Any], length: int, vocab_size: int
) -> npt.NDArray[np.float32]:
    outputs = steps.step([tokens[:length]], [0], features=features[None, :length])
    rows = [steps.logits(outputs, vocab_size)[0, -1]]
    for entry in range(length, len(tokens)):
        outputs = steps.step([[tokens[entry]]], [entry], hidden=outputs["hidden_out"][:, -1:])
        rows.append(steps.logits(outputs, vocab_size)[0, -1])
    return np.stack(rows)


def make_text(draft: DraftCheckpoint, size: int) -> tuple[list[int], npt.NDArray[np.float32]]:
    random = np.random.default_rng(2)
    features = random.normal(0, 1, (size, draft.spec.feature_size)).astype(np.float32)
    return random.integers(3, 200, size).tolist(), features


def build(checkpoint: Path, folder: Path, plan: DraftPlan, precision: Any = "fp32", rows: int = 1) -> DraftSteps:
    built = build_engine(checkpoint, folder, precision, draft=plan)
    assert built.draft is not None
    return DraftSteps(folder, built.draft, num_rows=rows)


@pytest.mark.parametrize("switches", SWITCHES)
@pytest.mark.parametrize("tied", [True, False])
def test_every_switch_is_what_the_spec_says(
    switches: str, tied: bool, tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint = tiny_checkpoint("llama", tie_word_embeddings=tied)
    with open_checkpoint(checkpoint) as target:
        draft = make_draft(target.spec, **SWITCHES[switches])
        tokens, features = make_text(draft, 9)
        expected = Oracle(draft, target).chain(tokens, features, 6)

    steps = build(checkpoint, tmp_path / "engine", DraftPlan(draft=draft, head="full", name="tiny"))

    assert_close(run_chain(steps, tokens, features, 6, expected.shape[-1]), expected.astype(np.float32))


def test_the_standard_dialect_gives_the_same(tiny_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    with open_checkpoint(tiny_checkpoint("llama")) as target:
        draft = make_draft(target.spec, window=4)
        tokens, features = make_text(draft, 9)
        expected = Oracle(draft, target).chain(tokens, features, 6)
        steps = build(target.path, tmp_path, DraftPlan(draft=draft, head="full", name="tiny"))
        options = DraftGraphOptions(
            dialect="standard", storage="fp32", capacity=64, head=DraftHead(kind="full"), stored=None
        )
        write_draft_graphs(draft.spec, draft.weights, target, options, tmp_path, progress=Silent())

    assert_close(run_chain(steps, tokens, features, 6, expected.shape[-1]), expected.astype(np.float32))


PRECISIONS = ["fp32", "fp16", pytest.param("int8", marks=needs_compiler)]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rows_of_a_batch_may_be_ragged_and_trees_grow_by_levels(
    precision: str, tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint = tiny_checkpoint("llama")
    lengths, parents, levels = [7, 4, 5], [-1, -1, 0, 1, 0], [0, 2, 5]
    with open_checkpoint(checkpoint) as target:
        draft = make_draft(target.spec)
        tokens, features = make_text(draft, 3 * 7 + 3 * 5)
        oracle = Oracle(draft, target, precision)
        expected = [
            grow(oracle, (tokens, features), slice(7 * b, 7 * b + n), tokens[21 + 5 * b : 26 + 5 * b], parents)
            for b, n in enumerate(lengths)
        ]
    steps = build(checkpoint, tmp_path / "e", DraftPlan(draft=draft, head="full", name="tiny"), precision, rows=3)
    ids, nodes = np.array(tokens[:21]).reshape(3, 7), np.array(tokens[21:]).reshape(3, 5)
    vocab_size, seen, found = draft.spec.vocab_size, ancestors(parents), []

    outputs = steps.step(ids, [0, 0, 0], features=features[:21].reshape(3, 7, -1), counts=lengths)
    root = np.stack([outputs["hidden_out"][b, n - 1] for b, n in enumerate(lengths)])
    hidden = np.repeat(root[:, None], 2, axis=1)
    for first, last in pairwise(levels):
        past = [n + first for n in lengths]
        outputs = steps.step(nodes[:, first:last], past, hidden=hidden, mask=seen[first:last, :last])
        found.append(steps.logits(outputs, vocab_size))
        hidden = outputs["hidden_out"][:, [0, 1, 0]]  # parents of nodes 2, 3 and 4

    for b in range(3):
        _assert_near(np.concatenate([level[b] for level in found]), expected[b], TOLERANCES[precision])


def grow(
    oracle: Oracle, text: tuple[list[int], npt.NDArray[Any]], span: slice, nodes: list[int], parents: list[int]
) -> npt.NDArray[np.float64]:
    """Logits [nodes, V] of a tree behind the entries ``span`` of ``text``, each node behind its parent's own cache."""
    tokens, features = text
    first = oracle.reference.prefill(np.array(tokens[span]), features[span])
    steps: list[DraftStep] = []
    for node, parent in enumerate(parents):
        above = first if parent < 0 else steps[parent]
        position = above.cache.positions[-1:] + 1
        steps.append(oracle.reference.step(np.array([nodes[node]]), above.hidden_out[-1:], position, above.cache))
    return np.stack([oracle.logits(step)[-1] for step in steps])


def _assert_near(found: npt.NDArray[Any], expected: npt.NDArray[Any], tolerance: float) -> None:
    """Of the tokens that were candidates; the best one must be among them."""
    known = np.isfinite(found)
    assert known.any(axis=-1).all()
    error = np.abs(np.where(known, found - expected, 0)).max() / np.abs(expected).max()
    assert error < tolerance, f"relative error {error:.1e}"


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("exact", [True, False])
def test_a_speculative_head_gives_the_candidates_of_its_ranking(
    precision: str, tied: bool, exact: bool, tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint = tiny_checkpoint("llama", tie_word_embeddings=tied)
    with open_checkpoint(checkpoint) as target:
        draft = make_draft(target.spec)
        ranking = make_ranking(target.spec, rank=12, num_candidates=40, is_exact=exact)
        prior = np.where(np.arange(target.spec.vocab_size) % 3 == 0, np.float32(-30), np.float32(0))
        ranking = replace(ranking, prior=prior)
        oracle = Oracle(draft, target, precision)
        tokens, features = make_text(draft, 6)
        step = oracle.reference.prefill(np.array(tokens), features)
    x = step.head_input[-1]
    vocabulary = round_weights(ranking.vocabulary) if precision == "int8" else ranking.vocabulary
    scores = vocabulary @ (ranking.down @ x) + prior
    best = np.argsort(-scores)[:40]
    logits = oracle.logits(step)[-1] if exact else scores

    plan = DraftPlan(draft=draft, head="speculative", ranking=ranking, name="tiny")
    steps = build(checkpoint, tmp_path / "engine", plan, precision)
    outputs = steps.step([tokens], [0], features=features[None])

    ids, found = outputs["candidate_ids"][0, -1], outputs["candidate_logits"][0, -1]
    # An untied INT8 head was rounded for its own inputs.
    tolerance = INT8_LOSS if precision == "int8" and not tied and exact else TOLERANCES[precision]
    np.testing.assert_allclose(found, logits[ids], atol=tolerance * np.abs(logits).max())
    order = best[np.argsort(-logits[best])][: len(ids)]
    assert len(set(ids) & set(order)) >= len(ids) * (1 if precision == "fp32" else 0.8)
    assert (ids % 3 != 0).all()
    assert (len(ids), steps.engine.num_candidates) == (16 if precision == "int8" else 40, 40)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_grouped_head_gives_all_tokens_of_the_best_groups(
    precision: str, tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint = tiny_checkpoint("llama")
    with open_checkpoint(checkpoint) as target:
        draft = make_draft(target.spec)
        ranking = make_ranking(target.spec, rank=12, num_candidates=target.spec.vocab_size + 8, group_size=8)
        oracle = Oracle(draft, target, precision)
        tokens, features = make_text(draft, 6)
        step = oracle.reference.prefill(np.array(tokens), features)
    expected = oracle.logits(step)[-1]

    steps = build(
        checkpoint,
        tmp_path / "engine",
        DraftPlan(draft=draft, head="grouped", ranking=ranking, name="tiny"),
        precision,
    )
    outputs = steps.step([tokens], [0], features=features[None])

    ids, found = outputs["candidate_ids"][0, -1], outputs["candidate_logits"][0, -1]
    real = ids >= 0
    np.testing.assert_array_equal(np.isfinite(found), real)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found[real], expected[ids[real]], atol=TOLERANCES[precision] * scale)
    if precision == "int8":  # the best of all, in order
        assert (np.diff(found) <= 0).all()
        assert found[0] >= expected.max() - TOLERANCES[precision] * scale
    else:
        assert sorted(ids[real]) == list(range(len(expected)))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("own_head", [True, False])
def test_a_permuted_subset_feeds_back_target_ids(
    precision: str, own_head: bool, tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """Three draft steps; row i of the head is token target_ids[i], in no order."""
    checkpoint = tiny_checkpoint("llama")
    with open_checkpoint(checkpoint) as target:
        target_ids = np.random.default_rng(4).permutation(target.spec.vocab_size)[:50]
        draft = make_draft(target.spec, target_ids=target_ids.tolist(), own_head=own_head)
        oracle = Oracle(draft, target, precision)
        head = oracle.head if own_head else oracle.head[target_ids]
        tokens, features = make_text(draft, 5)
    steps = build(checkpoint, tmp_path / "e", DraftPlan(draft=draft, head="subset", name="tiny"), precision)
    outputs = steps.step([tokens], [0], features=features[None])
    step = oracle.reference.prefill(np.array(tokens), features)

    for number in range(3):
        ids, found = outputs["candidate_ids"][0, -1], outputs["candidate_logits"][0, -1]
        expected = np.full(draft.spec.vocab_size, -np.inf)
        expected[target_ids] = step.head_input[-1] @ head.T.astype(np.float64)
        assert np.isfinite(expected[ids]).all()
        scale = np.abs(expected[target_ids]).max()
        np.testing.assert_allclose(found, expected[ids], atol=TOLERANCES[precision] * scale)
        token, entry = int(ids[np.argmax(found)]), np.array([5 + number])
        assert expected[token] >= expected.max() - TOLERANCES[precision] * scale
        outputs = steps.step([[token]], [5 + number], hidden=outputs["hidden_out"][:, -1:])
        step = oracle.reference.step(np.array([token]), step.hidden_out[-1:], entry, step.cache)
    assert steps.engine.head == "subset"


@needs_compiler
@pytest.mark.parametrize("switches", ["plain", "biases", "fc_norm", "norm_before_residual", "own_tables", "window"])
def test_int8_is_what_rounded_weights_give(switches: str, tiny_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("llama")
    with open_checkpoint(checkpoint) as target:
        draft = make_draft(target.spec, **SWITCHES[switches])
        tokens, features = make_text(draft, 9)
        expected = Oracle(draft, target, "int8").chain(tokens, features, 6)
        unrounded = Oracle(draft, target).chain(tokens, features, 6)

    steps = build(checkpoint, tmp_path / "e", DraftPlan(draft=draft, head="full", name="tiny"), "int8")
    found = run_chain(steps, tokens, features, 6, expected.shape[-1])

    _assert_near(found, expected, TOLERANCES["int8"])
    _assert_near(found, unrounded, INT8_LOSS)


@needs_compiler
def test_the_log_sum_exp_of_int8_counts_all_candidates(tiny_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("llama")
    with open_checkpoint(checkpoint) as target:
        draft = make_draft(target.spec)
        tokens, features = make_text(draft, 6)
        logits = Oracle(draft, target, "int8").chain(tokens, features, 6)[0]
    steps = build(checkpoint, tmp_path / "e", DraftPlan(draft=draft, head="full", name="tiny"), "int8")
    factors = np.full((1, 6), 0.5, np.float32)

    outputs = steps.step([tokens], [0], features=features[None], inverse_temperature=factors)

    assert outputs["log_sum_exp"][0, -1] == pytest.approx(np.log(np.exp(0.5 * logits).sum()), abs=0.01)
