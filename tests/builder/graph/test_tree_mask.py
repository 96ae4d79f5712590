"""Trees that grow by levels: a mask of U > T columns, in graphs that ONNX Runtime runs with its own operators."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.graph.dialects import DIALECTS, DialectName
from draftsmith.builder.graph.graph_builder import GraphBuilder
from draftsmith.builder.graph.step import HIDDEN_BIAS, Columns, Visibility, declare_inputs
from draftsmith.builder.graph.target_graph import GraphOptions, write_target_graph
from draftsmith.builder.graph.weights_file import WeightsFile
from draftsmith.builder.progress import Silent

from tests.engine_cases import FloatArray, ancestors

CAPACITY = 64
PLAIN: tuple[DialectName, ...] = ("onnxruntime", "standard", "primitive")
PARENTS = [-1, -1, 0, 1, 0, 2, 3, 3, 5, 6, 8, 4]
LEVELS = [0, 2, 5, 8, 12]
Feeds = dict[str, npt.NDArray[Any]]


def open_session(graph: Path | bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def expected_bias(feeds: Feeds, window: int | None) -> FloatArray:
    """Walks over every token's columns in order, counting those it sees."""
    past, mask, positions = feeds["past_lengths"], feeds["tree_mask"], feeds["positions"]
    rows, tokens, masked = mask.shape
    bias = np.full((rows, 1, tokens, int(past.max()) + tokens), HIDDEN_BIAS["float32"], np.float32)
    for b in range(rows):
        start = int(past[b]) - (masked - tokens)
        for t in range(tokens):
            place = 0
            for column in range(int(past[b]) + tokens):
                if column < start or mask[b, t, column - start]:
                    if window is None or positions[b, t] - place < window:
                        bias[b, 0, t, column] = 0
                    place += 1
    return bias


def bias_graph(folder: Path, opset: int, columns: Columns = "valid") -> onnx.ModelProto:
    with WeightsFile(folder / "none.weights") as weights:
        graph = GraphBuilder(weights, opset=opset)
        declare_inputs(graph, columns)
        graph.input("past_key_0", "float32", ["B", 1, CAPACITY, 1])
        visibility = Visibility(graph, columns)
        for window in (None, 5):
            graph.output(visibility.bias(window), f"bias_{window}", "float32", ["B", 1, "T", "L"])
        return graph.build("bias")


@pytest.mark.parametrize("opset", sorted({DIALECTS[name].opset for name in PLAIN}))
@pytest.mark.parametrize(("tokens", "masked"), [(1, 1), (5, 5), (1, 4), (4, 9), (3, 20)])
def test_the_bias_shows_what_the_mask_says(opset: int, tokens: int, masked: int, tmp_path: Path) -> None:
    random = np.random.default_rng(tokens * 100 + masked)
    past = np.array([masked - tokens, 30, 23], np.int32)
    mask = random.random((3, tokens, masked)) < 0.4
    mask &= np.tri(tokens, masked, masked - tokens, dtype=np.bool_)
    mask |= np.eye(tokens, masked, masked - tokens, dtype=np.bool_)
    start = past - (masked - tokens)
    feeds: Feeds = {
        "token_ids": np.zeros((3, tokens), np.int32),
        "positions": (start[:, None] + mask.sum(axis=2) - 1).astype(np.int32),
        "past_lengths": past,
        "tree_mask": mask,
    }
    session = open_session(bias_graph(tmp_path, opset).SerializeToString())
    unread = {"query_lengths": past, "logits_index": past[:, None], "past_key_0": np.zeros((3, 1, CAPACITY, 1), "f4")}

    found = session.run(None, {**feeds, **unread})

    for bias, window in zip(found, (None, 5), strict=True):
        np.testing.assert_array_equal(bias, expected_bias(feeds, window))


def test_a_mask_that_begins_before_a_short_row_hides_nothing_of_it(tmp_path: Path) -> None:
    """A row with fewer cached levels than its batch: columns before its first token do not count."""
    mask = np.array([[[0, 0, 1, 0, 1]]], np.bool_)  # two cached tokens; columns -2 to 2
    feeds: Feeds = {
        "token_ids": np.zeros((1, 1), np.int32),
        "positions": np.array([[1]], np.int32),
        "past_lengths": np.array([2], np.int32),
        "tree_mask": mask,
    }
    session = open_session(bias_graph(tmp_path, 24).SerializeToString())
    unread = {
        "query_lengths": np.ones(1, np.int32),
        "logits_index": np.zeros((1, 1), np.int32),
        "past_key_0": np.zeros((1, 1, CAPACITY, 1), np.float32),
    }

    for bias in session.run(None, {**feeds, **unread}):
        np.testing.assert_array_equal(bias == 0, [[[[True, False, True]]]])


def test_runtimes_that_read_all_columns_keep_square_masks(tmp_path: Path) -> None:
    shapes = {
        columns: [dim.dim_param for dim in graph_input.type.tensor_type.shape.dim]
        for columns in ("valid", "capacity")
        for graph_input in bias_graph(tmp_path, 24, columns).graph.input
        if graph_input.name == "tree_mask"
    }

    assert shapes == {"valid": ["B", "T", "U"], "capacity": ["B", "T", "T"]}


class Engine:
    """A graph with a cache of three rows, stepped with plain arrays."""

    def __init__(self, graph: Path) -> None:
        self._session = open_session(graph)
        shapes = {i.name: i.shape for i in self._session.get_inputs() if i.name.startswith(("past_key", "past_value"))}
        self._cache = {name: np.zeros((3, s[1], CAPACITY, s[3]), np.float32) for name, s in shapes.items()}

    def step(self, tokens: npt.NDArray[np.int32], past: list[int], mask: npt.NDArray[np.bool_]) -> FloatArray:
        """Logits [3, T, V] of ``tokens`` [3, T]; ``mask`` [T, U] for all rows."""
        rows, count = tokens.shape
        depths = mask.sum(axis=1) - 1 - (mask.shape[1] - count)
        feeds = {
            "token_ids": tokens,
            "positions": (np.array(past)[:, None] + depths).astype(np.int32),
            "past_lengths": np.array(past, np.int32),
            "query_lengths": np.full(rows, count, np.int32),
            "tree_mask": np.broadcast_to(mask, (rows, *mask.shape)),
            "logits_index": np.tile(np.arange(count, dtype=np.int32), (rows, 1)),
        }
        names = [output.name for output in self._session.get_outputs()]
        outputs = dict(zip(names, self._session.run(names, {**feeds, **self._cache}), strict=True))
        self._cache = {name: outputs[name.replace("past", "present")] for name in self._cache}
        logits: FloatArray = outputs["logits"]
        return logits


@pytest.mark.parametrize("dialect", PLAIN)
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_levels_give_what_plain_chains_give(
    architecture: str, dialect: DialectName, tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    options = GraphOptions(dialect=dialect, storage="fp32", capacity=CAPACITY)
    with open_checkpoint(tiny_checkpoint(architecture)) as opened:
        graph = write_target_graph(opened, options, tmp_path, progress=Silent()).graph
    prompts = np.random.default_rng(0).integers(3, 200, (3, 11)).astype(np.int32)
    nodes = np.random.default_rng(1).integers(3, 200, (3, len(PARENTS))).astype(np.int32)
    past, seen = [11, 7, 9], ancestors(PARENTS)

    engine, levels = Engine(graph), []
    engine.step(prompts, [0, 0, 0], np.tri(11, dtype=np.bool_))
    for first, last in pairwise(LEVELS):
        levels.append(engine.step(nodes[:, first:last], [p + first for p in past], seen[first:last, :last]))
    found = np.concatenate(levels, axis=1)

    for node in range(len(PARENTS)):
        path = np.flatnonzero(seen[node])
        chain = Engine(graph)
        chain.step(prompts, [0, 0, 0], np.tri(11, dtype=np.bool_))
        expected = chain.step(nodes[:, path], past, np.tri(len(path), dtype=np.bool_))[:, -1]
        np.testing.assert_allclose(found[:, node], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
