"""INT8 linears in ONNX Runtime: against integer arithmetic in NumPy, and bit for bit whatever shares the step."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from draftsmith.builder.graph.graph_builder import GraphBuilder
from draftsmith.builder.graph.weights_file import WeightsFile
from draftsmith.builder.quantize.codes import column_scales, round_columns
from draftsmith.builder.quantize.scheme import Int8Embedding, Int8Linear
from draftsmith.model_repo.runtime.sessions.integer_products import (
    PRODUCT_MODEL,
    are_products_exact,
    ask_for_exact_products,
)
from onnx import TensorProto, helper


def _session(folder: Path, plan: Int8Linear, bias: np.ndarray | None = None) -> ort.InferenceSession:
    d_in, d_out = plan.codes.shape
    with WeightsFile(folder / "w") as weights:
        graph = GraphBuilder(weights, opset=23)
        x = graph.input("x", "float32", ["B", "T", d_in])
        y = plan.emit(graph, x, np.zeros((d_in, d_out), np.float32), bias, "linear")
        graph.output(y, "y", "float32", ["B", "T", d_out])
        onnx.save_model(graph.build("g"), folder / "g.onnx")
    options = ort.SessionOptions()
    ask_for_exact_products(options)
    return ort.InferenceSession(folder / "g.onnx", options, providers=["CPUExecutionProvider"])


def _random_plan(planes: int, d_in: int = 40, d_out: int = 33) -> Int8Linear:
    rng = np.random.default_rng(planes)
    codes = rng.integers(-127, 128, (d_in, d_out)).astype(np.int8)
    scales = rng.uniform(0.001, 0.01, d_out).astype(np.float32)
    return Int8Linear(planes=planes, step=4.0 / (127 * 256 ** (planes - 1)), codes=codes, scales=scales)


def _largest_plan() -> Int8Linear:
    return Int8Linear(planes=1, step=1.0, codes=np.full((64, 16), 127, np.int8), scales=np.ones(16, np.float32))


def _expected(plan: Int8Linear, x: np.ndarray) -> np.ndarray:
    """Float64 and exact integers: planes of 8 bits, each of what the ones before left."""
    rest, total = x.astype(np.float64), 0.0
    for index in range(plan.planes):
        weight = 256.0 ** (plan.planes - 1 - index)
        step = float(np.float32(plan.step)) * weight
        plane = np.clip(np.rint(rest / step), -128, 127)
        rest = rest - plane * step
        total = total + weight * (plane.astype(np.int64) @ plan.codes.astype(np.int64))
    return total * float(np.float32(plan.step)) * plan.scales.astype(np.float64)


@pytest.mark.parametrize("planes", [1, 2, 3])
def test_the_product_is_that_of_integer_arithmetic(planes: int, tmp_path: Path) -> None:
    plan = _random_plan(planes)
    x = np.random.default_rng(0).uniform(-6, 6, (2, 5, 40)).astype(np.float32)  # a third saturates
    found = _session(tmp_path, plan).run(None, {"x": x})[0]
    expected = _expected(plan, x)
    # A value that lies within float32's rounding of a border may fall on its other side: one step of the last plane.
    np.testing.assert_allclose(
        found, expected, atol=3 * plan.step * 127 * plan.scales.max() + 1e-5 * np.abs(expected).max()
    )


@pytest.mark.parametrize("planes", [2, 3])
def test_more_planes_leave_the_error_of_their_last_step(planes: int, tmp_path: Path) -> None:
    plan = _random_plan(planes)
    x = np.random.default_rng(1).uniform(-4, 4, (1, 64, 40)).astype(np.float32)
    exact = x.astype(np.float64) @ (plan.codes * plan.scales.astype(np.float64))
    found = _session(tmp_path, plan).run(None, {"x": x})[0]
    assert (
        np.abs(found - exact).max()
        < 1.1 * 0.5 * plan.step * np.abs(plan.codes * plan.scales).sum(0).max() + 4e-6 * np.abs(exact).max()
    )


@pytest.mark.parametrize("planes", [1, 2, 3])
@pytest.mark.parametrize("d_out", [33, 64])
def test_a_row_gives_the_same_bits_alone_and_among_others(planes: int, d_out: int, tmp_path: Path) -> None:
    session = _session(tmp_path, _random_plan(planes, d_out=d_out), np.linspace(-1, 1, d_out, dtype=np.float32))
    rng = np.random.default_rng(2)
    x = rng.standard_normal((3, 16, 40)).astype(np.float32)
    alone = [[session.run(None, {"x": x[b, t][None, None]})[0][0, 0] for t in range(16)] for b in range(3)]
    for num_rows in (1, 2, 3):
        for num_tokens in (2, 3, 8, 16):
            together = session.run(None, {"x": x[:num_rows, :num_tokens]})[0]
            np.testing.assert_array_equal(together, np.array(alone)[:num_rows, :num_tokens])


def test_the_largest_codes_are_multiplied_exactly(tmp_path: Path) -> None:
    """255 x 127 twice is 64,770: a CPU without VNNI would cut each pair to 32,767."""
    x = np.full((1, 2, 64), 127, np.float32)
    x[0, 1] = -128
    found = _session(tmp_path, _largest_plan()).run(None, {"x": x})[0]
    np.testing.assert_array_equal(found[0, :, 0], [127 * 127 * 64, -128 * 127 * 64])


def test_biases_follow_the_factors_of_the_next_linear(tmp_path: Path) -> None:
    codes = np.eye(4, dtype=np.int8)
    factors = np.array([1, 2, 4, 8], np.float32)
    plan = Int8Linear(planes=1, step=1.0, codes=codes, scales=np.ones(4, np.float32) * factors, bias_factors=factors)
    found = _session(tmp_path, plan, np.ones(4, np.float32)).run(None, {"x": np.ones((1, 1, 4), np.float32)})[0]
    np.testing.assert_array_equal(found[0, 0], 2 * factors)


def test_a_plan_for_another_shape_is_refused(tmp_path: Path) -> None:
    plan = _random_plan(1)
    with WeightsFile(tmp_path / "w") as weights, pytest.raises(ValueError, match=r"head: the plan is for \(40, 33\)"):
        plan.emit(GraphBuilder(weights, opset=23), "x", np.zeros((4, 4), np.float32), None, "head")


def test_embedding_rows_are_within_half_a_step(tmp_path: Path) -> None:
    table = np.random.default_rng(5).standard_normal((20, 12)).astype(np.float32)
    table[3] = 0
    with WeightsFile(tmp_path / "w") as weights:
        graph = GraphBuilder(weights, opset=23)
        ids = graph.input("ids", "int32", ["B", "T"])
        graph.output(Int8Embedding().emit(graph, ids, table, "embedding"), "y", "float32", ["B", "T", 12])
        onnx.save_model(graph.build("g"), tmp_path / "g.onnx")
    session = ort.InferenceSession(tmp_path / "g.onnx", providers=["CPUExecutionProvider"])
    found = session.run(None, {"ids": np.array([[3, 7]], np.int32)})[0][0]
    np.testing.assert_array_equal(found[0], 0)
    assert np.abs(found[1] - table[7]).max() <= 0.5001 * np.abs(table[7]).max() / 127


def test_codes_of_a_column_reach_127_and_no_further() -> None:
    weight = np.array([[1.0, 0.0], [-2.0, 0.0], [0.5, 0.0]], np.float32)
    scales = column_scales(weight)
    np.testing.assert_allclose(scales, [2 / 127, 1])
    np.testing.assert_array_equal(round_columns(weight, scales), [[64, 0], [-127, 0], [32, 0]])


def test_the_product_probe_is_the_model_it_claims_to_be() -> None:
    def values(name: str, kind: int, shape: list[str]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    inputs = [values("a", TensorProto.UINT8, ["m", "k"]), values("b", TensorProto.INT8, ["k", "n"])]
    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    graph = helper.make_graph([node], "g", inputs, [values("y", TensorProto.INT32, ["m", "n"])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=5)
    model.producer_name = ""
    assert model.SerializeToString() == PRODUCT_MODEL


_WITHOUT_VNNI = """
import sys
import numpy, onnxruntime
from draftsmith.model_repo.runtime.sessions.integer_products import are_products_exact, ask_for_exact_products
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
ask_for_exact_products(options)
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
x = numpy.full((1, 2, 64), 127, numpy.float32)
print(are_products_exact(), int(session.run(None, {"x": x})[0].min()))
"""


@pytest.mark.parametrize("cpu", ["Haswell", "Skylake-Server"])
def test_a_cpu_without_vnni_is_noticed_and_multiplies_exactly_too(cpu: str, tmp_path: Path) -> None:
    emulator = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
    if emulator is None:
        pytest.skip("needs qemu-x86_64 (Debian: apt-get install qemu-user)")
    _session(tmp_path, _largest_plan())
    command = [emulator, "-cpu", cpu, sys.executable, "-W", "ignore", "-c", _WITHOUT_VNNI, str(tmp_path / "g.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == ["False", str(127 * 127 * 64)], done.stderr[-2000:]


def test_this_cpu_is_tried_once() -> None:
    are_products_exact.cache_clear()
    assert are_products_exact() == are_products_exact()
    assert are_products_exact.cache_info().misses == 1
