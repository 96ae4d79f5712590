"""The ONNX Runtime backend: what it writes, what it says of it, what it refuses."""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.engines import BACKEND_NAMES, BuildOptions, get_builder
from draftsmith.builder.engines.onnxruntime import OnnxRuntimeBuilder
from draftsmith.builder.errors import BackendError, UsageError
from draftsmith.builder.progress import Silent

from tests.engine_cases import build_engine

Write = Callable[..., Path]


def test_fp16_is_half_of_fp32_and_the_tied_head_is_stored_once(tiny_checkpoint: Write, tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("llama", vocab_size=4096)
    with open_checkpoint(checkpoint) as opened:
        matrices = sum(
            4 * facts.shape[0] * facts.shape[1] for facts in opened.weights.tensors.values() if len(facts.shape) == 2
        )
    sizes = {}
    for precision in ("fp32", "fp16"):
        built = build_engine(checkpoint, tmp_path / precision, precision)  # type: ignore[arg-type]
        sizes[precision] = (tmp_path / precision / "target.weights").stat().st_size
        assert built.files == ("target.onnx", "target.weights")
        assert sorted(p.name for p in (tmp_path / precision).iterdir()) == sorted(built.files)

    assert matrices < sizes["fp32"] < 1.2 * matrices
    assert sizes["fp16"] < 0.62 * sizes["fp32"]


def test_facts_for_the_manifest(tiny_checkpoint: Write, tmp_path: Path) -> None:
    built = build_engine(tiny_checkpoint("gemma3"), tmp_path, feature_layers=(0, 1, 2))

    assert (built.backend, built.precision, built.graph_file) == ("onnxruntime", "fp32", "target.onnx")
    assert (built.max_query_len, built.min_query_len, built.feature_layers) == (32, 2, (0, 1, 2))
    cache = built.kv_cache
    assert (cache.num_layers, cache.num_kv_heads, cache.head_dim, cache.dtype) == (4, 1, 32, "float32")
    assert cache.capacity == 128  # 96 tokens and a whole block of 32
    assert set(built.requires) == {"onnxruntime"}
    assert built.quality == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 513}, "max_length: expected 1 to 512, found 513"),
        ({"max_batch": 0}, "max_batch: expected 1 to 4096, found 0"),
        ({"max_query_len": 0}, "max_query_len: expected 1 to 8192, found 0"),
        ({"feature_layers": (4,)}, "feature_layers: expected 0 to 3, found 4"),
        ({"extras": {"fast": "1"}}, "extras: expected kernels, found fast"),
    ],
)
def test_options_that_cannot_be_built_are_refused_before_anything_is_written(
    options: dict[str, object], message: str, tiny_checkpoint: Write, tmp_path: Path
) -> None:
    folder = tmp_path / "engine"
    with pytest.raises(UsageError, match=message):
        build_engine(tiny_checkpoint("llama"), folder, **options)
    assert not list(folder.iterdir())


def test_an_unknown_backend_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="backend: expected onnxruntime or tensorrt-rtx, found 'tvm'"):
        get_builder("tvm")
    assert get_builder("onnxruntime").name in BACKEND_NAMES


@pytest.mark.parametrize(("found", "reason"), [(None, "not installed"), ("1.19.2", "1.19.2 is older than 1.32")])
def test_a_missing_or_old_onnxruntime_is_a_backend_error(
    found: str | None, reason: str, tiny_checkpoint: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(_: str) -> str:
        if found is None:
            raise PackageNotFoundError
        return found

    monkeypatch.setattr("draftsmith.builder.engines.onnxruntime.version", version)
    options = BuildOptions(precision="fp32", max_batch=1, max_length=8)

    with (
        open_checkpoint(tiny_checkpoint("llama")) as opened,
        pytest.raises(BackendError, match=rf"{reason}.* Run `pip install"),
    ):
        OnnxRuntimeBuilder().build(opened, options, tmp_path, progress=Silent())


def test_a_full_disk_is_a_build_error(tiny_checkpoint: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("draftsmith.builder.engines.onnxruntime.write_target_graph", refuse)
    with pytest.raises(Exception, match=r"graph: found .*No space left on device"):
        build_engine(tiny_checkpoint("llama"), tmp_path)


def test_two_builds_are_byte_for_byte_equal(tiny_checkpoint: Write, tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("gemma3")
    for name in ("one", "two"):
        build_engine(checkpoint, tmp_path / name, "fp16")

    for name in ("target.onnx", "target.weights"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
