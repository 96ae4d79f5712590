"""From a checkpoint to a package: what is written, what is skipped, what is refused, what a failure leaves."""

import errno
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from draftsmith.builder import pipeline
from draftsmith.builder.cli import app
from draftsmith.builder.draft_options import NONE, DraftChoice
from draftsmith.builder.engines import BackendStatus
from draftsmith.builder.engines.onnxruntime import OnnxRuntimeBuilder
from draftsmith.builder.errors import BackendError, BuildError, CheckpointError, UsageError
from draftsmith.builder.package.manifest import check_files, read_manifest
from draftsmith.builder.pipeline import build, compile_only, package
from draftsmith.builder.plan import BuildPlan, default_name
from draftsmith.builder.progress import Silent
from draftsmith.model_repo.contract.errors import ManifestError
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

QUIET = Silent()


@pytest.fixture
def plan(tiny_checkpoint: Callable[..., Path], tmp_path: Path) -> BuildPlan:
    return BuildPlan(
        checkpoint=tiny_checkpoint("llama"),
        output=tmp_path / "out" / "repository",
        name="tiny",
        precisions=("fp16",),
        max_batch=2,
        max_length=64,
        max_query_len=16,
    )


def files_below(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_package_holds_what_its_manifest_says_and_triton_can_read(plan: BuildPlan) -> None:
    (built,) = build(plan, QUIET)
    folder = plan.output / "tiny_fp16"
    assert built.folder == folder
    manifest = read_manifest(folder / "1")
    check_files(folder / "1", manifest, QUIET)
    named = {f"1/{entry.name}" for entry in manifest.files}
    assert set(files_below(folder)) == named | {"config.pbtxt", "1/model.py", "1/engine.json"}
    config = text_format.Parse((folder / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())
    assert config.name == "tiny_fp16"
    assert (manifest.max_batch, manifest.max_length) == (2, 64)


def test_a_package_names_no_place_on_this_machine(plan: BuildPlan, tmp_path: Path) -> None:
    build(plan, QUIET)
    for path in (plan.output / "tiny_fp16").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert str(tmp_path).encode() not in content, path
            assert str(Path.cwd()).encode() not in content, path


def test_the_same_build_again_is_skipped_and_another_one_replaces_it(plan: BuildPlan) -> None:
    build(plan, QUIET)
    before = (plan.output / "tiny_fp16").stat().st_ino
    assert [p.skipped for p in build(plan, QUIET)] == [True]
    assert (plan.output / "tiny_fp16").stat().st_ino == before
    (longer,) = build(replace(plan, max_length=128), QUIET)
    assert not longer.skipped
    assert read_manifest(plan.output / "tiny_fp16" / "1").max_length == 128


def test_a_damaged_package_is_built_again(plan: BuildPlan) -> None:
    build(plan, QUIET)
    (plan.output / "tiny_fp16" / "1" / "target.weights").unlink()
    assert [p.skipped for p in build(plan, QUIET)] == [False]


@pytest.mark.parametrize("name", ["1/model.py", "config.pbtxt", "1/target.weights", "1/chat_template.jinja"])
def test_a_package_with_an_altered_or_missing_file_is_built_again(plan: BuildPlan, name: str) -> None:
    build(plan, QUIET)
    path = plan.output / "tiny_fp16" / name
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # of the same size
    assert [p.skipped for p in build(plan, QUIET)] == [False]
    path.unlink()
    assert [p.skipped for p in build(plan, QUIET)] == [False]
    assert path.read_bytes() == content
    assert [p.skipped for p in build(plan, QUIET)] == [True]


def test_a_package_of_another_format_is_replaced_where_it_is_of_the_same_model(plan: BuildPlan) -> None:
    build(plan, QUIET)
    path = plan.output / "tiny_fp16" / "1" / "engine.json"
    values = json.loads(path.read_text())
    del values["special_tokens"]
    path.write_text(json.dumps({**values, "format_version": 1}))
    with pytest.raises(BuildError, match="found one of tiny"):
        build(replace(plan, checkpoint=plan.checkpoint.rename(plan.checkpoint.parent / "other")), QUIET)
    (plan.checkpoint.parent / "other").rename(plan.checkpoint)
    assert [p.skipped for p in build(plan, QUIET)] == [False]
    assert read_manifest(path.parent).special_tokens["bos_token"]


def test_another_checkpoints_package_is_not_replaced_unless_forced(
    plan: BuildPlan, tiny_checkpoint: Callable[..., Path]
) -> None:
    build(plan, QUIET)
    other = replace(plan, checkpoint=tiny_checkpoint("qwen3"))
    with pytest.raises(
        BuildError, match=r"expected a package of tiny from qwen3.*found one of tiny from llama.*--force"
    ):
        build(other, QUIET)
    build(replace(other, force=True), QUIET)
    assert read_manifest(plan.output / "tiny_fp16" / "1").spec["architecture"] == "qwen3"


def test_a_foreign_folder_is_never_deleted(plan: BuildPlan) -> None:
    precious = plan.output / "tiny_fp16" / "thesis.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("x")
    with pytest.raises(BuildError, match="found something else"):
        build(replace(plan, force=True), QUIET)
    assert precious.read_text() == "x"


def test_compiled_engines_packaged_later_are_the_same_package(plan: BuildPlan, tmp_path: Path) -> None:
    build(plan, QUIET)
    compile_only(replace(plan, output=tmp_path / "engines"), QUIET)
    package([tmp_path / "engines" / "tiny_fp16"], tmp_path / "again", QUIET, force=False)
    first, second = plan.output / "tiny_fp16", tmp_path / "again" / "tiny_fp16"
    assert files_below(first) == files_below(second)
    for name in files_below(first):
        if name != "1/engine.json":  # holds the build's duration
            assert (first / name).read_bytes() == (second / name).read_bytes()


def test_an_engine_that_was_altered_is_not_packaged(plan: BuildPlan, tmp_path: Path) -> None:
    compile_only(replace(plan, output=tmp_path / "engines"), QUIET)
    engine = tmp_path / "engines" / "tiny_fp16"
    weights = bytearray((engine / "target.weights").read_bytes())
    weights[len(weights) // 2] ^= 1
    (engine / "target.weights").write_bytes(weights)
    with pytest.raises(ManifestError, match=r"target.weights: expected SHA-256"):
        package([engine], plan.output, QUIET, force=False)
    assert not plan.output.exists()


def test_a_length_beyond_the_models_positions_is_refused_up_front(plan: BuildPlan) -> None:
    limit = json.loads((plan.checkpoint / "config.json").read_text())["max_position_embeddings"]
    build(replace(plan, max_length=limit), QUIET)
    with pytest.raises(UsageError, match=f"--max-length: expected at most the model's {limit:,} positions"):
        build(replace(plan, max_length=limit + 1), QUIET)


def test_a_checkpoint_without_its_head_fails_and_leaves_no_folder(
    plan: BuildPlan, tiny_checkpoint: Callable[..., Path]
) -> None:
    config = plan.checkpoint / "config.json"
    values = json.loads(config.read_text())
    values["tie_word_embeddings"] = not values.get("tie_word_embeddings", False)
    config.write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=r"lm_head\.weight"):
        build(plan, QUIET)
    assert not plan.output.parent.exists()


@pytest.mark.parametrize(
    ("failure", "raised", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), BuildError, "disk: expected room for tiny_fp16"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
        (MemoryError(), MemoryError, None),
    ],
)
def test_a_build_that_ends_half_way_leaves_nothing(
    plan: BuildPlan,
    monkeypatch: pytest.MonkeyPatch,
    failure: BaseException,
    raised: type[BaseException],
    message: str | None,
) -> None:
    def half(self: object, checkpoint: object, options: object, folder: Path, *, progress: object) -> None:
        (folder / "target.weights").write_bytes(b"half")
        raise failure

    monkeypatch.setattr(OnnxRuntimeBuilder, "build", half)
    with pytest.raises(raised, match=message):
        build(plan, QUIET)
    assert not plan.output.parent.exists()


def test_a_disk_that_is_too_small_is_found_before_anything_is_written(
    plan: BuildPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        pipeline, "check_disk", lambda folder, need: (_ for _ in ()).throw(BuildError("disk", found=str(need)))
    )
    with pytest.raises(BuildError, match=r"disk: found \d{5,}"):
        build(plan, QUIET)
    assert not plan.output.parent.exists()


def test_a_missing_vocabulary_file_is_found_before_anything_is_built(plan: BuildPlan, tmp_path: Path) -> None:
    draft = DraftChoice(source=str(tmp_path), vocabulary=tmp_path / "none.safetensors")
    with pytest.raises(UsageError, match="--draft-vocabulary: expected a file, found none"):
        build(replace(plan, draft=draft), QUIET)
    assert not plan.output.parent.exists()


def test_a_draft_needs_room_on_the_disk_as_well(
    plan: BuildPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = []

    def refuse(folder: Path, need: int) -> None:
        needs.append(need)
        raise BuildError("disk")

    monkeypatch.setattr(pipeline, "check_disk", refuse)
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "model.safetensors").write_bytes(b"x" * 5000)
    for draft in (DraftChoice(source=NONE), DraftChoice(source=str(tmp_path / "draft"))):
        with pytest.raises(BuildError, match="disk"):
            build(replace(plan, draft=draft), QUIET)
    assert needs[1] - needs[0] == 5000


@pytest.mark.parametrize(
    ("content", "message"), [(None, "expected a file"), (b"\xff", "expected UTF-8"), (b" \n", "expected some text")]
)
def test_a_bad_calibration_text_is_refused(
    plan: BuildPlan, tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "text"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=f"--calibration-text: {message}"):
        build(replace(plan, calibration_text=path), QUIET)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct"),
        ("gemma-3-270m-it-Q4_K_M.gguf", "gemma-3-270m-it"),
        ("models/Qwen3-0.6B/", "qwen3-0.6b"),
        ("Llama 3.2 (1B)", "llama-3.2-1b"),
        ("モデル", "model"),
    ],
)
def test_a_name_is_made_from_the_path(path: str, name: str) -> None:
    assert default_name(Path(path)) == name


def test_the_command_prints_what_it_built_and_then_that_it_is_up_to_date(
    plan: BuildPlan, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["build", str(plan.checkpoint), "-o", str(plan.output), "-p", "fp16", "--max-length", "64", "--quiet"]
    assert app.run(command) == 0
    first = capsys.readouterr()
    assert first.err == ""
    folder = plan.output / f"{default_name(plan.checkpoint)}_fp16"
    assert re.search(rf"{folder} +[\d.]+ s +[\d.]+ MB\n", first.out)
    assert app.run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["packages"][0]["skipped"] is True


def test_a_backend_that_is_missing_is_found_before_anything_is_written(
    plan: BuildPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = BackendStatus(name="onnxruntime", version=None, reason="not installed", install="pip install onnxruntime")
    monkeypatch.setattr(OnnxRuntimeBuilder, "available", lambda self: status)
    with pytest.raises(BackendError, match=r"found not installed.*pip install onnxruntime"):
        build(plan, QUIET)
    assert not plan.output.parent.exists()
