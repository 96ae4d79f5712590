"""The plugin library of an engine: found, read without loading, checked and loaded; every error names what matters."""

import json
import platform
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from draftsmith.plugins.tensorrt_library import (
    PLUGINS,
    VERSION,
    PluginLibraryError,
    PluginRequirement,
    check_library,
    find_library,
    library_name,
    load_library,
    read_library,
)

NAME = library_name(10, 13)
REQUIREMENT = PluginRequirement(library=NAME, version=VERSION, plugins=PLUGINS, tensorrt=10)
FACTS: dict[str, Any] = {
    "version": VERSION,
    "kernels_version": 1,
    "tensorrt": 10,
    "cuda": 13,
    "machine": platform.machine(),
    "architectures": "90-real,120",
    "plugins": list(PLUGINS),
}


def write_library(folder: Path, **changes: Any) -> Path:
    """A file that says what a library says, and is none."""
    path = folder / NAME
    path.write_bytes(b"\x7fELF..." + b"draftsmith-plugins:" + json.dumps(FACTS | changes).encode() + b"\0rest")
    return path


def compile_library(folder: Path, source: str) -> Path:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc")
    text = json.dumps(json.dumps(FACTS))
    (folder / "library.c").write_text(f'const char metadata[] = "draftsmith-plugins:" {text};\n{source}\n')
    subprocess.run([gcc, "-shared", "-fPIC", "-o", str(folder / NAME), str(folder / "library.c")], check=True)
    return folder / NAME


def test_a_library_is_read_without_loading_it(tmp_path: Path) -> None:
    library = read_library(write_library(tmp_path))

    assert (library.version, library.tensorrt, library.cuda) == (VERSION, 10, 13)
    assert library.plugins == PLUGINS
    assert library.architectures == "90-real,120"
    check_library(library, REQUIREMENT)


def test_what_an_engine_needs_goes_through_the_manifest() -> None:
    assert PluginRequirement.from_requires(REQUIREMENT.to_requires() | {"gpu": "sm90"}) == REQUIREMENT
    assert PluginRequirement.from_requires({"machine": "x86_64"}) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"plugins": None}, ["requires", "plugins"]),
        ({"plugins_version": "one"}, ["whole numbers", "one"]),
        ({"plugin_library": "../x.so"}, ["file name", "../x.so"]),
    ],
)
def test_a_manifest_that_says_it_wrongly_is_refused(changes: dict[str, str | None], words: list[str]) -> None:
    given = {key: value for key, value in (REQUIREMENT.to_requires() | changes).items() if value is not None}
    with pytest.raises(PluginLibraryError) as caught:
        PluginRequirement.from_requires(given)
    assert all(word in str(caught.value) for word in words)


def test_a_library_that_is_not_there_is_named_with_plugins_versions_folders_and_tritons_option(tmp_path: Path) -> None:
    with pytest.raises(PluginLibraryError) as caught:
        find_library(REQUIREMENT, [tmp_path, tmp_path / "other"])

    said = str(caught.value)
    for word in (NAME, "SpecVocabHead version 1", f"version {VERSION}", str(tmp_path)):
        assert word in said
    assert "--backend-config=tensorrt,plugins=" in said
    assert "build-engine plugins build --tensorrt 10" in said


def test_the_first_folder_that_has_it_wins(tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    path = write_library(second)
    assert find_library(REQUIREMENT, [tmp_path, second]) == path
    first = write_library(tmp_path)
    assert find_library(REQUIREMENT, [tmp_path, second]) == first


@pytest.mark.parametrize(
    ("changes", "expected", "found"),
    [
        ({"version": VERSION + 1}, f"version {VERSION}", f"version {VERSION + 1}"),
        ({"tensorrt": 11}, "TensorRT 10", "TensorRT 11"),
        ({"machine": "vax"}, platform.machine(), "vax"),
        ({"plugins": ["LossyAccept"]}, "SpecVocabHead", "LossyAccept"),
    ],
)
def test_a_library_of_another_kind_is_refused_before_it_is_loaded(
    changes: dict[str, Any], expected: str, found: str, tmp_path: Path
) -> None:
    path = write_library(tmp_path, **changes)
    with pytest.raises(PluginLibraryError) as caught:
        load_library(REQUIREMENT, [tmp_path])
    error = caught.value
    assert expected in error.expected and found in error.found
    said = str(error)
    assert str(path) in said and "SpecVocabHead version 1" in said
    assert f"--backend-config=tensorrt,plugins={path}" in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["empty"]),
        (b"\x7fELF nothing of ours", ["without its mark"]),
        (b'draftsmith-plugins:{"version": 1', ["without its mark"]),
        (b'draftsmith-plugins:{"version": }\0', ["damaged metadata"]),
        (b'draftsmith-plugins:{"version": 1}\0', ["damaged metadata", "kernels_version"]),
    ],
)
def test_a_file_that_is_no_library_is_refused(content: bytes, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(content)
    with pytest.raises(PluginLibraryError) as caught:
        read_library(path)
    assert all(word in str(caught.value) for word in (NAME, *words))


def test_a_library_without_its_tensorrt_says_which_to_install(tmp_path: Path) -> None:
    compile_library(tmp_path, "int getPluginRegistry_of_no_library(void); int f(void) { return 0; }")
    path = tmp_path / NAME
    broken = path.read_bytes()[:64]  # an ELF header alone: the loader refuses it
    mark = b"draftsmith-plugins:" + json.dumps(FACTS).encode() + b"\0"
    path.write_bytes(broken + mark)

    with pytest.raises(PluginLibraryError) as caught:
        load_library(REQUIREMENT, [tmp_path])

    assert "libnvinfer.so.10" in str(caught.value) and "LD_LIBRARY_PATH" in str(caught.value)
    assert "SpecVocabHead version 1" in str(caught.value)


def test_a_library_that_registers_too_few_plugins_is_an_error(tmp_path: Path) -> None:
    compile_library(tmp_path, "int draftsmith_plugins_register(void) { return 0; }")
    with pytest.raises(PluginLibraryError, match=r"0 of 2 registered.*one draftsmith plugin library a process"):
        load_library(REQUIREMENT, [tmp_path])


def test_a_library_that_registers_its_plugins_is_loaded_twice_without_harm(tmp_path: Path) -> None:
    compile_library(tmp_path, "int draftsmith_plugins_register(void) { return 2; }")
    assert load_library(REQUIREMENT, [tmp_path]) == load_library(REQUIREMENT, [tmp_path])


def test_an_engine_may_need_one_plugin_alone(tmp_path: Path) -> None:
    write_library(tmp_path, plugins=["SpecVocabHead"])
    wanted = replace(REQUIREMENT, plugins=("SpecVocabHead",))
    check_library(read_library(tmp_path / NAME), wanted)
