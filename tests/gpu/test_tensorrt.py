"""The plugin inside TensorRT.

8.6: engines are built, stored, read by a fresh process and replayed from a CUDA graph. 10 and 11: creators, parsed
models, inferred shapes and plugin objects called directly, since building an engine there needs kernel libraries for
the GPU that the archives we can get do not hold. Run once for each version: DRAFTSMITH_TENSORRT_HEADERS and
DRAFTSMITH_TENSORRT_LIBRARIES name the folders.
"""

import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from draftsmith.builder.graph.plugin_functions import declare_outputs, make_head_node, model_with_functions
from draftsmith.plugins.reference.spec_vocab_head import HeadOptions, HeadWeights, spec_vocab_head
from onnx import helper

from tests.gpu.tensorrt_build import Workshop, build_workshop
from tests.gpu.tensorrt_cases import Array, PluginCase, head_case, timing_case

# fp32 sums against float64 ones.
LOGIT_TOLERANCE = 2e-4
HEADS = {
    "fp16": head_case(5, 128, 16, 3000, k=200, out=8),
    "odd": head_case(3, 99, 7, 1001, k=1, out=1),
    "int8": head_case(7, 256, 32, 5000, k=300, out=16, ranking="int8"),
    "grouped": head_case(4, 128, 16, 4000, k=320, out=8, group_size=16),
}
MOST_OF_BARE = 1.2


@pytest.fixture(scope="session")
def capability() -> str:
    asked = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs an NVIDIA GPU: there is no nvidia-smi")
    if done.returncode or not done.stdout.strip():
        pytest.skip(f"needs an NVIDIA GPU: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.split()[0].replace(".", "")


@pytest.fixture(scope="session")
def workshop(capability: str, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return build_workshop(tmp_path_factory.mktemp("tensorrt"), capability)


@pytest.fixture
def builds_engines(workshop: Workshop) -> Workshop:
    if workshop.major != 8:
        pytest.skip(f"needs TensorRT 8.6, which builds engines everywhere; this is {workshop.major}")
    return workshop


@pytest.fixture
def calls_directly(workshop: Workshop) -> Workshop:
    if workshop.major == 8:
        pytest.skip("needs TensorRT 10 or 11")
    return workshop


def check_head(case: PluginCase, outputs: dict[str, Array]) -> None:
    inputs = {name: value for name, value in case.inputs.items() if isinstance(value, np.ndarray)}
    options = HeadOptions(
        hidden_type="float16",
        ranking_type=str(inputs["w_vocab"].dtype),  # type: ignore[arg-type]
        num_candidates=case.attributes["k"],
        num_outputs=case.attributes["out"],
        group_size=case.attributes["group_size"],
    )
    weights = HeadWeights(
        w_down=inputs["w_down"],
        w_vocab=inputs["w_vocab"],
        w_head=inputs["w_head"],
        w_vocab_scales=inputs.get("w_vocab_scales"),
    )
    expected = spec_vocab_head(inputs["hidden"], weights, options, inputs["request_of_row"])
    np.testing.assert_array_equal(outputs["candidate_ids"], expected.candidate_ids)
    np.testing.assert_allclose(outputs["candidate_logits"], expected.candidate_logits, atol=LOGIT_TOLERANCE, rtol=1e-5)
    np.testing.assert_allclose(outputs["log_sum_exp"], expected.log_sum_exp, atol=1e-3)


@pytest.mark.parametrize("name", HEADS)
def test_an_engine_with_the_plugin_is_read_by_a_fresh_process_and_replayed_from_a_graph(
    name: str, builds_engines: Workshop, tmp_path: Path
) -> None:
    head = HEADS[name]
    case = head.write(tmp_path, "head")
    engine = tmp_path / "head.engine"

    builds_engines.run("build", engine, case)
    said = builds_engines.run("run", engine, case)

    assert "replayed from a graph" in said
    check_head(head, head.read(tmp_path, "head"))


def test_an_engine_read_without_the_library_says_which_plugin_is_missing(
    builds_engines: Workshop, tmp_path: Path
) -> None:
    case = HEADS["fp16"].write(tmp_path, "head")
    engine = tmp_path / "head.engine"
    builds_engines.run("build", engine, case)

    done = builds_engines.call("run", engine, case, library=False)

    assert done.returncode == 1
    assert re.search(r"SpecVocabHead.*\b1\b", done.stderr), done.stderr


def test_a_damaged_plugin_in_an_engine_is_refused(builds_engines: Workshop, tmp_path: Path) -> None:
    case = HEADS["fp16"].write(tmp_path, "head")
    engine = tmp_path / "head.engine"
    builds_engines.run("build", engine, case)
    content = bytearray(engine.read_bytes())
    at = content.index(b"DSPL")
    content[at + 16] ^= 1  # k
    engine.write_bytes(content)

    done = builds_engines.call("run", engine, case)

    assert done.returncode == 1
    assert "SpecVocabHead" in done.stderr or "not read" in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 10])
def test_the_head_in_an_engine_takes_at_most_a_fifth_longer_than_the_bare_kernels(
    rows: int, builds_engines: Workshop, tmp_path: Path
) -> None:
    case = timing_case(rows).write(tmp_path, "head")
    engine = tmp_path / "head.engine"
    builds_engines.run("build", engine, case)

    said = builds_engines.run("time", engine, case)

    match = re.fullmatch(r"engine ([\d.]+) bare ([\d.]+)\n", said)
    assert match, said
    print(f"M = {rows}: {said.strip()} microseconds")
    assert float(match.group(1)) <= MOST_OF_BARE * float(match.group(2)), said


@pytest.mark.parametrize("name", HEADS)
def test_a_plugin_object_called_directly_gives_the_references_outputs(
    name: str, calls_directly: Workshop, tmp_path: Path
) -> None:
    head = HEADS[name]
    case = head.write(tmp_path, "head")

    calls_directly.run("direct", case)

    check_head(head, head.read(tmp_path, "head"))


@pytest.mark.parametrize("rows", ["M", 10])
def test_a_model_with_the_operator_is_parsed_to_a_plugin_with_shapes(
    rows: str | int, calls_directly: Workshop, tmp_path: Path
) -> None:
    model = tmp_path / "model.onnx"
    onnx.save(make_model(rows), model)

    said = calls_directly.run("parse", model)

    size = -1 if rows == "M" else rows
    shapes = dict(re.findall(r"output (\w+) \d+ \[(.*)\]", said))
    assert shapes["candidate_ids"] == f"{size}, 8", said
    assert shapes["candidate_logits"] == f"{size}, 8", said
    assert shapes["log_sum_exp"] == f"{size}", said


def make_model(rows: str | int) -> onnx.ModelProto:
    """The operator alone."""
    half, ints = onnx.TensorProto.FLOAT16, onnx.TensorProto.INT32
    shapes: dict[str, tuple[int, list[str | int]]] = {
        "hidden": (half, [rows, 64]),
        "w_down": (half, [8, 64]),
        "w_vocab": (half, [500, 8]),
        "w_head": (half, [500, 64]),
        "request_of_row": (ints, [rows]),
    }
    head = make_head_node(list(shapes), k=40, out=8)
    values = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in shapes.items()]
    return model_with_functions(helper.make_graph([head], "head", values, declare_outputs(head)))
