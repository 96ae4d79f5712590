"""``build-engine plugins``: libraries for every TensorRT whose headers are here, and errors for what is missing."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from draftsmith.builder.cli import app
from draftsmith.builder.errors import BackendError, BuildError, UsageError
from draftsmith.builder.plugin_build import PluginBuild, Toolchain, build_plugins, find_headers, find_toolchain
from draftsmith.builder.progress import Silent
from draftsmith.plugins.tensorrt_library import PLUGINS, read_library

ROOT = Path(__file__).parents[2]
CUDA_VARIABLE = "DRAFTSMITH_CUDA"
HEADERS_VARIABLE = "DRAFTSMITH_TENSORRT_HEADERS"
HEADERS = Path(os.environ.get(HEADERS_VARIABLE) or ROOT.parent / "shared" / "third_party" / "tensorrt")


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv(HEADERS_VARIABLE, raising=False)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    given = os.environ.get(CUDA_VARIABLE)
    try:
        return find_toolchain(Path(given) if given else None)
    except BackendError as error:
        pytest.skip(str(error))


@pytest.fixture
def headers() -> Path:
    if not HEADERS.is_dir():
        pytest.skip(f"needs TensorRT's headers: {HEADERS_VARIABLE}, or {HEADERS}")
    return HEADERS


def make_headers(folder: Path, major: int) -> Path:
    folder.mkdir(parents=True)
    (folder / "NvInfer.h").write_text("")
    (folder / "NvInferVersion.h").write_text(f"#define NV_TENSORRT_MAJOR {major}\n")
    return folder


def make_program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def make_toolkit(folder: Path, release: str = "13.0") -> Path:
    make_program(folder / "bin" / "nvcc", f"echo 'Cuda compilation tools, release {release}, V{release}.1'")
    (folder / "lib").mkdir()
    (folder / "lib" / "libcudart_static.a").write_bytes(b"")
    return folder


@pytest.mark.slow
def test_libraries_for_every_tensorrt_are_built_and_say_who_they_are(
    toolchain: Toolchain,
    headers: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DRAFTSMITH_WARNINGS_ARE_ERRORS", "ON")
    output = tmp_path / "plugins"
    arguments = ["plugins", "build", "-o", str(output), "--arch", "90", "--json", "--quiet"]
    arguments += ["--headers", str(headers), "--cuda", str(toolchain.nvcc.parent.parent)]

    assert app.run(arguments) == 0, capsys.readouterr().err

    built = json.loads(capsys.readouterr().out)["libraries"]
    majors = [h.major for h in find_headers((), headers)]
    assert [library["tensorrt"] for library in built] == [None, *majors]
    for library in built[1:]:
        facts = read_library(Path(library["path"]))
        assert (facts.tensorrt, facts.cuda) == (library["tensorrt"], toolchain.cuda_major)
        assert facts.plugins == PLUGINS and facts.architectures == "90"
        check_needed(facts.path, facts.tensorrt)
    assert sorted(path.name for path in output.iterdir()) == sorted(Path(b["path"]).name for b in built)
    assert app.run(["plugins", "list", str(output)]) == 0
    shown = capsys.readouterr().out
    assert all(Path(library["path"]).name in shown for library in built[1:])


def check_needed(library: Path, major: int) -> None:
    """It asks for the real TensorRT and for no CUDA library (the runtime is inside)."""
    readelf = shutil.which("readelf")
    if readelf is None:
        return
    said = subprocess.run([readelf, "-d", str(library)], capture_output=True, text=True, check=True).stdout
    assert f"[libnvinfer.so.{major}]" in said
    assert "cudart" not in said and "RUNPATH" not in said and "RPATH" not in said


def test_an_unknown_version_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"8\.6, 10, 11, none"):
        find_headers(("9",), tmp_path)
    with pytest.raises(UsageError, match="none alone"):
        find_headers(("none", "10"), tmp_path)


def test_headers_that_are_not_there_name_the_option(tmp_path: Path) -> None:
    make_headers(tmp_path / "8", 8)
    with pytest.raises(BackendError) as caught:
        find_headers(("10",), tmp_path)
    said = str(caught.value)
    assert "TensorRT 10" in said and "8.6" in said and "--headers" in said and str(tmp_path) in said


def test_headers_are_found_in_a_folder_and_in_folders_of_it(tmp_path: Path) -> None:
    one, other = make_headers(tmp_path / "all" / "old", 8), make_headers(tmp_path / "all" / "new", 11)
    assert [(h.version, h.folder) for h in find_headers((), tmp_path / "all")] == [("8.6", one), ("11", other)]
    assert [h.folder for h in find_headers(("11",), other)] == [other]
    assert find_headers(("none",), None) == ()


def test_a_toolkit_that_is_missing_or_too_old_names_what_helps(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"--cuda.*nvidia-cuda-nvcc"):
        find_toolchain(tmp_path)
    with pytest.raises(BackendError, match=r"CUDA 12 or 13, found CUDA 11\.8"):
        find_toolchain(make_toolkit(tmp_path / "old", "11.8"))


def test_a_cmake_that_is_missing_or_too_old_names_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, programs = make_toolkit(tmp_path / "cuda"), tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/bin")
    monkeypatch.setattr("sys.executable", str(programs / "python"))
    monkeypatch.setattr("draftsmith.builder.plugin_build.toolchain.shutil.which", lambda name: None)
    with pytest.raises(BackendError, match="pip install cmake"):
        find_toolchain(cuda)
    make_program(programs / "cmake", "echo cmake version 3.10.2")
    with pytest.raises(BackendError, match=r"3\.24 or later, found 3\.10"):
        find_toolchain(cuda)


def fake_plan(tmp_path: Path, script: str, *, architectures: tuple[str, ...] = ("90",)) -> PluginBuild:
    cuda = make_toolkit(tmp_path / "cuda")
    toolchain = Toolchain(
        nvcc=cuda / "bin" / "nvcc",
        cuda="13.0",
        libraries=cuda / "lib",
        cmake=make_program(tmp_path / "cmake", script),
        ninja=None,
    )
    return PluginBuild(toolchain=toolchain, headers=(), architectures=architectures, output=tmp_path / "output")


@pytest.mark.parametrize("name", ["60", "sm90", "", "9", "90-fast"])
def test_an_architecture_that_nvcc_does_not_know_is_refused_before_anything_runs(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--arch"):
        build_plugins(fake_plan(tmp_path, f"touch {tmp_path}/ran", architectures=(name,)), Silent())
    assert not (tmp_path / "ran").exists()


def test_a_build_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    plan = fake_plan(tmp_path, "echo '[1/2] fine'; echo 'head.cu(3): error: expected a ;'; echo 'more'; exit 1")
    with pytest.raises(BuildError, match=r"exit status 1: head\.cu\(3\): error: expected a ;"):
        build_plugins(plan, Silent())
    assert not plan.output.exists()


def test_a_build_that_makes_no_library_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"libdraftsmith_kernels_cu13\.so"):
        build_plugins(fake_plan(tmp_path, "exit 0"), Silent())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["build", "-o", "x", "--tensorrt", "9"], 2, ["--tensorrt", "9"]),
        (["build", "-o", "x", "--tensorrt", "none", "--arch", "60"], 2, ["--arch", "60"]),
        (["build", "-o", "x", "--tensorrt", "none", "--cuda", "/not/there"], 4, ["nvcc", "/not/there"]),
        (["build", "-o", "x", "--headers", "/not/there"], 2, ["--headers", "/not/there"]),
        (["build", "-o", "/dev/null"], 2, ["--output"]),
        (["list", "/not/there"], 2, ["/not/there"]),
        (["list", "/dev"], 5, ["libdraftsmith_plugins_", "build-engine plugins build"]),
    ],
)
def test_the_command_names_what_is_wrong_in_one_line(
    arguments: list[str], code: int, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["plugins", *arguments]) == code
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1
    assert all(word in shown.err for word in words), shown.err


def test_a_damaged_library_is_named_by_the_listing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "libdraftsmith_plugins_trt10_cu13.so").write_bytes(b"nothing")
    assert app.run(["plugins", "list", str(tmp_path)]) == 5
    assert "libdraftsmith_plugins_trt10_cu13.so" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["build", "list"])
def test_every_help_explains_itself_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["plugins", command, "--help"]) == 0
    assert f"Example: build-engine plugins {command}" in capsys.readouterr().out
