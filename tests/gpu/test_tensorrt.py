"""The plugins inside TensorRT.

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
from draftsmith.builder.graph.plugin_functions import (
    declare_outputs,
    make_accept_node,
    make_head_node,
    model_with_functions,
)
from draftsmith.plugins.accept_kernel import SHARED_NOISE
from draftsmith.plugins.reference.accept_step import Rule
from draftsmith.plugins.reference.lossy_accept import AcceptParams, AcceptTree
from draftsmith.plugins.reference.spec_vocab_head import HeadOptions, HeadWeights, spec_vocab_head
from onnx import helper

from tests.gpu import accept_cases
from tests.gpu.tensorrt_build import Workshop, build_workshop
from tests.gpu.tensorrt_cases import Array, PluginCase, accept_case, head_case, timing_case

# fp32 sums against float64 ones.
LOGIT_TOLERANCE = 2e-4
HEADS = {
    "fp16": head_case(5, 128, 16, 3000, k=200, out=8),
    "odd": head_case(3, 99, 7, 1001, k=1, out=1),
    "int8": head_case(7, 256, 32, 5000, k=300, out=16, ranking="int8"),
    "grouped": head_case(4, 128, 16, 4000, k=320, out=8, group_size=16),
}
MOST_OF_BARE = 1.2
# Columns of row_floats.
FLOATS = ("temperature", "top_p", "min_p", "first", "second", "kl_cap", "kl_spent", "recovery_limit")


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


def check_accept(case: PluginCase, outputs: dict[str, Array]) -> None:
    assert accept_cases.check(as_accept_case(case), outputs) == 0


def as_accept_case(case: PluginCase) -> accept_cases.AcceptCase:
    given = {name: np.asarray(value) for name, value in case.inputs.items()}
    keys = np.ascontiguousarray(given["row_keys"]).view(np.int64)
    trees = [
        AcceptTree(parents=parents, token_ids=tokens, relaxation=relaxation)
        for parents, tokens, relaxation in zip(given["parents"], given["token_ids"], given["relaxation"], strict=True)
    ]
    params = [
        AcceptParams(
            rule=Rule(int(whole[0])),
            top_k=int(whole[1]),
            shared_noise=bool(whole[2] & SHARED_NOISE),
            recovery_state=int(whole[3]),
            seed=int(key[0]),
            position=int(key[1]),
            **dict(zip(FLOATS, real.tolist(), strict=True)),
        )
        for real, whole, key in zip(given["row_floats"], given["row_ints"], keys, strict=True)
    ]
    logits = given["logits"].astype(np.float32)
    return accept_cases.AcceptCase(logits=logits, logits_type="float16", trees=trees, params=params)


@pytest.mark.parametrize("name", HEADS)
def test_an_engine_with_both_plugins_is_read_by_a_fresh_process_and_replayed_from_a_graph(
    name: str, builds_engines: Workshop, tmp_path: Path
) -> None:
    head, accept = HEADS[name], accept_case(6, 5, 777)
    cases = [head.write(tmp_path, "head"), accept.write(tmp_path, "accept")]
    engine = tmp_path / "both.engine"

    builds_engines.run("build", engine, *cases)
    said = builds_engines.run("run", engine, *cases)

    assert "replayed from a graph" in said
    check_head(head, head.read(tmp_path, "head"))
    check_accept(accept, accept.read(tmp_path, "accept"))


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
    head, accept = HEADS[name], accept_case(6, 5, 777)
    cases = [head.write(tmp_path, "head"), accept.write(tmp_path, "accept")]

    calls_directly.run("direct", *cases)

    check_head(head, head.read(tmp_path, "head"))
    check_accept(accept, accept.read(tmp_path, "accept"))


@pytest.mark.parametrize("rows", ["M", 10])
def test_a_model_with_both_operators_is_parsed_to_plugins_with_shapes(
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
    assert shapes["accepted_nodes"] == f"{size}, 5", said
    assert shapes["bonus_token"] == f"{size}", said


def make_model(rows: str | int) -> onnx.ModelProto:
    """Both operators side by side, M rows and M requests."""
    half, floats, ints = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
    shapes: dict[str, tuple[int, list[str | int]]] = {
        "hidden": (half, [rows, 64]),
        "w_down": (half, [8, 64]),
        "w_vocab": (half, [500, 8]),
        "w_head": (half, [500, 64]),
        "request_of_row": (ints, [rows]),
        "logits": (half, [rows, 5, 500]),
        "parents": (ints, [rows, 5]),
        "token_ids": (ints, [rows, 5]),
        "num_nodes": (ints, [rows]),
        "row_floats": (floats, [rows, 8]),
        "row_ints": (ints, [rows, 4]),
        "row_keys": (ints, [rows, 4]),
        "relaxation": (floats, [rows, 5]),
    }
    head = make_head_node(list(shapes)[:5], k=40, out=8)
    accept = make_accept_node(list(shapes)[5:])
    outputs = [*declare_outputs(head), *declare_outputs(accept)]
    values = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in shapes.items()]
    return model_with_functions(helper.make_graph([head, accept], "both", values, outputs))
