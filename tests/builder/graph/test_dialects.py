"""All dialects compute the same, in ONNX Runtime, with ragged rows, a tree and a grown cache."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.errors import BuildError
from draftsmith.builder.graph.check import check_graph
from draftsmith.builder.graph.dialects import DIALECTS, DialectName
from draftsmith.builder.graph.step import Columns
from draftsmith.builder.graph.target_graph import GraphFiles, GraphOptions, write_target_graph
from draftsmith.builder.progress import Silent
from draftsmith.model_repo.runtime.sessions.base import StepInputs

from tests.engine_cases import FloatArray, step_inputs

CAPACITY = 64
FORMS: list[tuple[DialectName, Columns]] = [
    ("onnxruntime", "valid"),
    ("standard", "valid"),
    ("standard", "capacity"),
    ("primitive", "valid"),
    ("primitive", "capacity"),
]
PRIMITIVES = {
    *("Add", "And", "Cast", "Concat", "Div", "Expand", "Gather", "GatherElements", "GatherND", "Gemm", "Identity"),
    *("Less", "LessOrEqual", "MatMul", "Max", "Min", "Mul", "Or", "Range", "ReduceMax", "ReduceMean", "Reshape"),
    *("ScatterElements", "Shape", "Sigmoid", "Slice", "Softmax", "Split", "Sqrt", "Squeeze", "Sub", "Tanh"),
    *("Transpose", "Unsqueeze", "Where"),
}
Write = Callable[..., Path]


def write_graph(checkpoint: Path, folder: Path, dialect: DialectName, columns: Columns = "valid") -> GraphFiles:
    folder.mkdir()
    options = GraphOptions(dialect=dialect, storage="fp32", capacity=CAPACITY, columns=columns, feature_layers=(0, 3))
    with open_checkpoint(checkpoint) as opened:
        return write_target_graph(opened, options, folder, progress=Silent())


def run_two_steps(graph: Path) -> list[FloatArray]:
    """Logits of a ragged prefill and of a tree behind it, padding left out."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    caches = [i for i in session.get_inputs() if i.name.startswith("past_") and i.name != "past_lengths"]
    cache = {i.name: np.zeros((3, i.shape[1], CAPACITY, i.shape[3]), np.float32) for i in caches}
    tokens = np.random.default_rng(0).integers(3, 200, (3, 13)).tolist()
    prefill = step_inputs([0, 1, 2], [tokens[0][:9], tokens[1][:4], tokens[2][:7]], [0, 0, 0])
    block = [row[9:] for row in tokens]
    found = []
    for step in (prefill, step_inputs([0, 1, 2], block, [9, 4, 7], parents=[-1, 0, 0, 2])):
        names = [o.name for o in session.get_outputs()]
        outputs = dict(zip(names, session.run(names, {**feeds(step), **cache}), strict=True))
        cache = {name: outputs[name.replace("past", "present")] for name in cache}
        for name in ("logits", "features"):
            found += [outputs[name][row, :count] for row, count in enumerate(step.query_lengths)]
    return found


def feeds(step: StepInputs) -> dict[str, np.ndarray]:
    names = ("token_ids", "positions", "past_lengths", "query_lengths", "tree_mask", "logits_index")
    return {name: getattr(step, name) for name in names}


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3", "gemma3"])
def test_dialects_agree(architecture: str, tiny_checkpoint: Write, tmp_path: Path) -> None:
    folder = tiny_checkpoint(architecture)
    results = []
    for dialect, columns in FORMS:
        files = write_graph(folder, tmp_path / f"{dialect}-{columns}", dialect, columns)
        check_graph(files.graph)
        results.append(run_two_steps(files.graph))

    for (dialect, columns), result in zip(FORMS[1:], results[1:], strict=True):
        for found, expected in zip(result, results[0], strict=True):
            error = np.abs(found - expected).max() / np.abs(expected).max()
            assert error < 1e-5, (dialect, columns)


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_the_primitive_dialect_uses_what_tensorrt_8_6_knows(
    architecture: str, tiny_checkpoint: Write, tmp_path: Path
) -> None:
    model = onnx.load(
        write_graph(tiny_checkpoint(architecture), tmp_path / "g", "primitive").graph, load_external_data=False
    )

    assert {node.op_type for node in model.graph.node} <= PRIMITIVES
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_half_precision_graphs_are_valid(dialect: DialectName, tiny_checkpoint: Write, tmp_path: Path) -> None:
    options = GraphOptions(dialect=dialect, storage="fp16", compute="fp16", capacity=CAPACITY)
    with open_checkpoint(tiny_checkpoint("gemma3")) as opened:
        files = write_target_graph(opened, options, tmp_path, progress=Silent())

    check_graph(files.graph)
    model = onnx.load(files.graph, load_external_data=False)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=dialect != "onnxruntime")
    types = {i.name: i.type.tensor_type.elem_type for i in (*model.graph.input, *model.graph.output)}
    assert types["past_key_0"] == types["present_value_3"] == onnx.TensorProto.FLOAT16
    assert types["logits"] == onnx.TensorProto.FLOAT


def test_an_unnamed_dimension_is_refused(tiny_checkpoint: Write, tmp_path: Path) -> None:
    files = write_graph(tiny_checkpoint("llama"), tmp_path / "g", "standard")
    model = onnx.load(files.graph, load_external_data=False)
    model.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_param")
    onnx.save_model(model, files.graph)

    with pytest.raises(BuildError, match=r"dimension: expected a name or a size, found neither .token_ids."):
        check_graph(files.graph)


def test_a_broken_graph_is_refused(tiny_checkpoint: Write, tmp_path: Path) -> None:
    files = write_graph(tiny_checkpoint("llama"), tmp_path / "g", "standard")
    model = onnx.load(files.graph, load_external_data=False)
    del model.graph.node[3]
    onnx.save_model(model, files.graph)

    with pytest.raises(BuildError, match="graph: expected valid ONNX"):
        check_graph(files.graph)
