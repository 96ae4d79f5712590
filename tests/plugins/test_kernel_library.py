"""The binding of the CUDA kernels, as far as no GPU is needed: its mirror of the C interface, and loading."""

import re
import subprocess
from dataclasses import fields, replace
from enum import IntEnum
from pathlib import Path

import pytest
from draftsmith.plugins.cpu_library import find_compiler
from draftsmith.plugins.kernel_library import (
    KERNELS_VERSION,
    ElementType,
    HeadArguments,
    HeadPath,
    HeadShape,
    KernelError,
    KernelLibrary,
    KernelLibraryError,
)

KERNELS = Path(__file__).parents[2] / "plugins" / "csrc" / "kernels"
WRONG_VERSION = """
int draftsmith_kernels_version(void) { return 99; }
"""
REFUSING = """
int draftsmith_kernels_version(void) { return VERSION; }
int draftsmith_head_workspace_bytes(const int *shape, unsigned long *bytes) { *bytes = shape[3]; return shape[0] > 64; }
const char *draftsmith_status_name(int status) { return status == 1 ? "too_many" : "unknown"; }
const char *draftsmith_status_detail(void) { return "rows: expected 64, found more"; }
"""
SHAPE = HeadShape(
    num_rows=1,
    hidden_size=2,
    rank=3,
    num_vocab=4,
    num_candidates=5,
    num_outputs=6,
    group_size=7,
    hidden_type=ElementType.FLOAT16,
    ranking_type=ElementType.INT8,
    path=HeadPath.AUTO,
)


def members(header: str, struct: str) -> list[str]:
    """Names of a struct's fields in a header, in their order."""
    text = (KERNELS / header).read_text(encoding="utf-8")
    body = text.split(f"typedef struct {struct} {{")[1].split(f"}} {struct};")[0]
    return re.findall(r"(\w+);", re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL))


def enumeration(header: str, name: str, prefix: str) -> dict[str, int]:
    text = (KERNELS / header).read_text(encoding="utf-8")
    body = text.split(f"typedef enum {name} {{")[1].split("}")[0]
    return {key: int(value) for key, value in re.findall(rf"{prefix}(\w+) = (\d+)", body)}


def compile_library(folder: Path, source: str) -> Path:
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("needs x86-64 Linux and a C compiler")
    (folder / "library.c").write_text(source, encoding="ascii")
    library = folder / "library.so"
    flags = ("-shared", "-fPIC", f"-DVERSION={KERNELS_VERSION}")
    subprocess.run([*compiler.command, *flags, str(folder / "library.c"), "-o", str(library)], check=True)
    return library


@pytest.mark.parametrize(
    ("struct", "mirror"), [("draftsmith_head_shape", HeadShape), ("draftsmith_head_arguments", HeadArguments)]
)
def test_structures_have_the_header_s_fields_in_its_order(struct, mirror):
    assert [field.name for field in fields(mirror)] == members("spec_vocab_head.h", struct)


@pytest.mark.parametrize(
    ("header", "name", "prefix", "mirror"),
    [
        ("status.h", "draftsmith_type", "DRAFTSMITH_", ElementType),
        ("spec_vocab_head.h", "draftsmith_head_path", "DRAFTSMITH_HEAD_", HeadPath),
    ],
)
def test_enumerations_have_the_header_s_numbers(header: str, name: str, prefix: str, mirror: type[IntEnum]):
    assert {member.name: member.value for member in mirror} == enumeration(header, name, prefix)


def test_the_version_is_the_header_s():
    text = (KERNELS / "status.h").read_text(encoding="utf-8")
    assert re.findall(r"DRAFTSMITH_KERNELS_VERSION = (\d+)", text) == [str(KERNELS_VERSION)]


def test_every_status_has_a_name():
    header = (KERNELS / "status.h").read_text(encoding="utf-8")
    statuses = re.findall(r"DRAFTSMITH_(\w+) = \d+[,\s]", header.split("enum draftsmith_status {")[1].split("}")[0])
    source = (KERNELS / "status.cc").read_text(encoding="utf-8")
    for status in statuses:
        assert f'case DRAFTSMITH_{status}: return "{status.lower()}";' in source


def test_a_missing_library_is_named(tmp_path):
    with pytest.raises(KernelLibraryError, match=r"nothing\.so: cannot be loaded as draftsmith's kernels"):
        KernelLibrary(tmp_path / "nothing.so")


def test_a_library_of_something_else_is_refused(tmp_path):
    with pytest.raises(KernelLibraryError, match="cannot be loaded as draftsmith's kernels"):
        KernelLibrary(compile_library(tmp_path, "int something(void) { return 0; }\n"))


def test_a_library_of_another_version_is_refused(tmp_path):
    with pytest.raises(KernelLibraryError, match=f"expected kernels of version {KERNELS_VERSION}, found 99"):
        KernelLibrary(compile_library(tmp_path, WRONG_VERSION))


def test_a_status_becomes_an_error_with_its_name_and_words(tmp_path):
    library = KernelLibrary(compile_library(tmp_path, REFUSING))

    assert library.head_workspace_bytes(SHAPE) == 4
    with pytest.raises(KernelError, match=r"head_workspace_bytes: too_many: rows: expected 64, found more") as caught:
        library.head_workspace_bytes(replace(SHAPE, num_rows=65))
    assert (caught.value.status, caught.value.name) == (1, "too_many")
