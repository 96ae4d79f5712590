"""The draft's part of an engine: files, borrowed weights, language models as drafts, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.draft.plan import DraftPlan
from draftsmith.builder.engines import get_builder
from draftsmith.builder.engines.base import BuildOptions
from draftsmith.builder.errors import UsageError
from draftsmith.builder.graph.graph_builder import GraphBuilder
from draftsmith.builder.graph.vocabulary_tables import FloatTable
from draftsmith.builder.graph.weights_file import WeightsFile
from draftsmith.builder.spec.draft import HeadKind
from draftsmith.model_repo.contract.manifest import Manifest
from draftsmith.model_repo.runtime.sessions.base import DraftInputs
from draftsmith.model_repo.runtime.sessions.onnxruntime_draft import OnnxRuntimeDraftSession
from draftsmith.plugins.cpu_library import find_compiler

from tests.builder.graph.transformers_oracle import Oracle, assert_close
from tests.engine_cases import build_engine, manifest_of
from tests.tiny_drafts import DraftSteps, make_draft, make_ranking
from tests.tiny_models import write_tiny_checkpoint

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="needs a C compiler on x86-64 Linux")
PRECISIONS = ["fp32", "fp16", pytest.param("int8", marks=needs_compiler)]
EXTERNAL = {"target.weights", "draft.weights"}


def places(graph: Path) -> dict[str, tuple[str, str, str]]:
    """File, offset and length of each initializer outside the graph."""
    found = {}
    for tensor in onnx.load(graph, load_external_data=False).graph.initializer:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if entries:
            found[tensor.name] = (entries["location"], entries["offset"], entries["length"])
    return found


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("tied", [True, False])
def test_what_is_borrowed_lies_in_the_targets_file_alone(
    precision: Any, tied: bool, tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint = tiny_checkpoint("llama", tie_word_embeddings=tied)
    with open_checkpoint(checkpoint) as target:
        draft = make_draft(target.spec)

    built = build_engine(checkpoint, tmp_path / "e", precision, draft=DraftPlan(draft=draft, head="full", name="tiny"))

    target_places = places(tmp_path / "e" / "target.onnx")
    first, later = (places(tmp_path / "e" / f"draft_{name}.onnx") for name in ("first", "next"))
    borrowed = {name: place for name, place in first.items() if place[0] == "target.weights"}
    parts = ("weight", "scales") if precision == "int8" else ("weight",)
    assert set(borrowed) == {f"{t}.{p}" for t in (["embedding"] if tied else ["embedding", "head"]) for p in parts}
    assert all(target_places[name] == place for name, place in borrowed.items())
    assert {place[0] for place in first.values()} == EXTERNAL
    assert later == {name: place for name, place in first.items() if not name.startswith("fc.")}
    assert set(built.files) >= {"draft_first.onnx", "draft_next.onnx", "draft.weights"}
    assert built.feature_layers == draft.spec.feature_layers
    assert sorted(path.name for path in (tmp_path / "e").iterdir()) == sorted(built.files)


def test_the_manifest_says_what_was_written(tiny_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("llama")
    with open_checkpoint(checkpoint) as target:
        ranking = make_ranking(target.spec, rank=4, num_candidates=20)
        draft = make_draft(target.spec, window=8)
    plan = DraftPlan(draft=draft, head="speculative", ranking=ranking, name="tiny", window=5, num_outputs=6)
    built = build_engine(checkpoint, tmp_path / "e", draft=plan)

    engine = built.draft
    assert engine is not None
    assert (engine.kind, engine.head, engine.format, engine.name) == ("eagle3", "speculative", "speculators", "tiny")
    assert (engine.window, engine.num_candidates, engine.num_outputs) == (5, 20, 6)
    assert (engine.feature_size, engine.hidden_size, engine.is_native) == (192, 64, False)
    assert engine.spec == replace(draft.spec, window=5).to_dict()
    assert engine.kv_cache.num_layers == 1 and engine.kv_cache.capacity % 64 == 0
    manifest = replace(manifest_of(built, {"vocab_size": 10}, 96), draft=engine)
    assert Manifest.from_dict({**manifest.to_dict(), "tokenizer_file": built.graph_file}).draft == engine


def test_a_window_of_zero_takes_the_drafts_own_away(tiny_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("llama")
    with open_checkpoint(checkpoint) as target:
        draft = make_draft(target.spec, window=8)
    plan = DraftPlan(draft=draft, head="full", name="tiny", window=0)

    engine = build_engine(checkpoint, tmp_path / "e", draft=plan).draft

    assert engine is not None
    assert (engine.window, engine.spec["window"]) == (0, None)


@pytest.mark.parametrize("head", ["full", "speculative"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_draft_beside_int8_of_onnx_runtime_reads_the_targets_codes(
    tied: bool, head: HeadKind, tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint = tiny_checkpoint("llama", tie_word_embeddings=tied)
    with open_checkpoint(checkpoint) as target:
        draft = make_draft(target.spec)
        ranking = None if head == "full" else make_ranking(target.spec, rank=8, num_candidates=60)
        plan = DraftPlan(draft=draft, head=head, ranking=ranking, name="tiny")
    built = build_engine(checkpoint, tmp_path / "e", "int8", draft=plan, extras={"kernels": "onnxruntime"})
    plain = build_engine(checkpoint, tmp_path / "f", "fp32", draft=plan)
    assert built.draft is not None and plain.draft is not None
    features = np.random.default_rng(0).normal(0, 1, (1, 5, draft.spec.feature_size))

    found, expected = (
        steps.logits(steps.step([[5, 6, 7, 8, 9]], [0], features=features), draft.spec.vocab_size)
        for steps in (DraftSteps(tmp_path / "e", built.draft), DraftSteps(tmp_path / "f", plain.draft))
    )

    target_places = places(tmp_path / "e" / "target.onnx")
    first = places(tmp_path / "e" / "draft_first.onnx")
    borrowed = {name: place for name, place in first.items() if place[0] == "target.weights"}
    wanted = {"embedding.codes", "embedding.scales"}
    assert set(borrowed) == wanted | (set() if tied else {"head.codes", "head.scales", "head.divisors"})
    assert all(target_places[name] == place for name, place in borrowed.items())
    both = np.isfinite(found) & np.isfinite(expected)
    assert both.sum() > 0.9 * np.isfinite(expected).sum()
    assert np.abs(found[both] - expected[both]).max() < 0.03 * np.abs(expected[both]).max()


def test_what_divides_a_heads_inputs_is_taken_out_again() -> None:
    """Codes of rows that were multiplied with factors give the rows' own products and look-ups."""
    random = np.random.default_rng(2)
    rows, factors = random.normal(0, 1, (50, 16)), random.uniform(0.3, 3, 16)
    x, ids = random.normal(0, 1, (2, 3, 16)).astype(np.float32), random.integers(0, 50, (2, 3, 7), np.int32)
    codes = np.round(rows * factors * 20).astype(np.int8)
    known = codes / 20 / factors

    found = run_table(codes.T, np.full(50, 1 / 20), factors, x, ids)

    np.testing.assert_allclose(found["all"], x @ known.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["some"], np.einsum("bnd,bnkd->bnk", x, known[ids]), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["rows"], known[ids[:, :, 0]], rtol=1e-5, atol=1e-6)


def run_table(codes: Any, scales: Any, divisors: Any, x: Any, ids: Any) -> dict[str, Any]:
    """All three uses of a table [d, V]."""
    with TemporaryDirectory() as folder, WeightsFile(Path(folder) / "w") as weights:
        graph = GraphBuilder(weights, opset=17)
        table = FloatTable(
            name=graph.constant(codes, "int8"),
            dtype="int8",
            num_rows=codes.shape[1],
            width=codes.shape[0],
            is_transposed=True,
            scales=graph.constant(scales, "float32"),
            divisors=graph.constant(divisors, "float32"),
        )
        graph.input("x", "float32", ["B", "N", "d"])
        graph.input("ids", "int32", ["B", "N", "k"])
        first = graph.op("Gather", "ids", graph.constant(0, "int64"), axis=2)
        graph.output(table.multiply(graph, "x"), "all", "float32", ["B", "N", "V"])
        graph.output(table.multiply_rows(graph, "x", "ids"), "some", "float32", ["B", "N", "k"])
        graph.output(table.look_up(graph, first), "rows", "float32", ["B", "N", "d"])
        session = onnxruntime.InferenceSession(graph.build("table").SerializeToString())
    names = ["all", "some", "rows"]
    return dict(zip(names, session.run(names, {"x": x, "ids": ids}), strict=True))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_language_model_drafts_with_its_own_logits(
    precision: Any, tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """Its padding rows beyond the target's vocabulary are no candidates."""
    checkpoint = tiny_checkpoint("llama")
    with open_checkpoint(checkpoint) as target:
        vocab_size = target.spec.vocab_size
    small = write_tiny_checkpoint(tmp_path / "small", "qwen2", num_hidden_layers=2, vocab_size=vocab_size + 3)
    tokens = np.random.default_rng(1).integers(3, 200, 9).tolist()
    expected = Oracle(small).logits(tokens)[:, :vocab_size]

    with open_checkpoint(small) as draft:
        plan = DraftPlan(draft=draft, head="full", name="small")
        built = build_engine(checkpoint, tmp_path / "e", precision, draft=plan)
    engine = built.draft
    assert engine is not None
    assert (engine.kind, engine.first_graph, engine.next_graph) == ("model", None, "draft_next.onnx")
    assert (engine.feature_size, engine.hidden_size, engine.num_candidates) == (0, 0, vocab_size)
    assert built.feature_layers == ()
    steps = DraftSteps(tmp_path / "e", engine)
    logits = [steps.step([tokens[:6]], [0]), *(steps.step([[t]], [6 + i]) for i, t in enumerate(tokens[6:]))]
    found = np.concatenate([steps.logits(outputs, vocab_size)[0] for outputs in logits])

    if precision != "int8":
        assert_close(found, expected, 2e-4 if precision == "fp32" else 5e-3)
        return
    known = np.isfinite(found)
    assert (known.sum(axis=-1) == 16).all()
    assert np.abs(np.where(known, found - expected, 0)).max() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_draft_session_steps_the_engine(precision: Any, tiny_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("llama")
    with open_checkpoint(checkpoint) as target:
        draft, spec = make_draft(target.spec), target.spec
    built = build_engine(checkpoint, tmp_path / "e", precision, draft=DraftPlan(draft=draft, head="full", name="tiny"))
    assert built.draft is not None
    manifest = replace(manifest_of(built, spec.to_dict(), 96), draft=built.draft)
    session = OnnxRuntimeDraftSession(tmp_path / "e", manifest, num_threads=1, num_slots=2)
    features = np.random.default_rng(0).normal(0, 1, (1, 3, draft.spec.feature_size)).astype(np.float32)
    inputs = DraftInputs(
        slots=np.array([1], np.int32),
        token_ids=np.array([[5, 6, 7]], np.int32),
        positions=np.arange(3, dtype=np.int32)[None],
        past_lengths=np.zeros(1, np.int32),
        query_lengths=np.array([3], np.int32),
        tree_mask=np.tri(3, dtype=np.bool_)[None],
        logits_index=np.array([[2]], np.int32),
        features=features,
        hidden=None,
        noise_keys=np.zeros((1, 1), np.int64),
        inverse_temperature=np.ones((1, 1), np.float32),
    )

    outputs = session.step(inputs)
    expected = DraftSteps(tmp_path / "e", built.draft).step([[5, 6, 7]], [0], features=features)

    assert outputs.token_ids.shape == (1, 1, 16)
    assert outputs.hidden is not None
    np.testing.assert_allclose(outputs.hidden[0, 0], expected["hidden_out"][0, 2], atol=1e-5)
    best = expected["candidate_logits"][0, 2].max()
    assert outputs.logits[0, 0, 0] == pytest.approx(best, abs=1e-4)
    session.close()


def test_plans_whose_parts_do_not_go_together_are_refused(tiny_checkpoint: Callable[..., Path]) -> None:
    checkpoint = tiny_checkpoint("llama")
    with open_checkpoint(checkpoint) as target:
        draft, own = make_draft(target.spec), make_draft(target.spec, own_head=True, target_ids=[7, 3, 9])
        ranking = make_ranking(target.spec, rank=4, num_candidates=20)
        wrong = [
            DraftPlan(draft=draft, head="speculative", name="x"),
            DraftPlan(draft=draft, head="full", ranking=ranking, name="x"),
            DraftPlan(draft=draft, head="grouped", ranking=ranking, name="x"),
            DraftPlan(draft=draft, head="subset", name="x"),
            DraftPlan(draft=own, head="speculative", ranking=ranking, name="x"),
            DraftPlan(draft=own, head="subset", target_ids=np.array([1, 2, 3], np.int32), name="x"),
            DraftPlan(draft=draft, head="full", num_outputs=65, name="x"),
            DraftPlan(draft=target, head="subset", name="x"),
            DraftPlan(draft=target, head="full", window=4, name="x"),
        ]
        for plan in wrong:
            options = BuildOptions(precision="fp32", max_batch=1, max_length=32, draft=plan)
            with pytest.raises(UsageError, match="draft"):
                options.check(target)


def test_tensorrt_rtx_refuses_a_draft(tiny_checkpoint: Callable[..., Path]) -> None:
    with open_checkpoint(tiny_checkpoint("llama")) as target:
        plan = DraftPlan(draft=make_draft(target.spec), head="full", name="tiny")
        options = BuildOptions(precision="fp16", max_batch=1, max_length=32, draft=plan)
        with pytest.raises(UsageError, match="none for the backend tensorrt-rtx"):
            get_builder("tensorrt-rtx").check(target, options)
