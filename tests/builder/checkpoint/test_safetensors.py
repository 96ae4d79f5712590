"""Safetensors headers: hostile sizes, offsets, types and shapes are refused before anything is trusted."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draftsmith.builder.checkpoint.safetensors import SafetensorsFile
from draftsmith.builder.errors import CheckpointError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny_models import write_safetensors

GOOD = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def write_raw(path: Path, header: Any, data: bytes = bytes(24), *, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        SafetensorsFile(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"shape": [2, 4]}, "expected 32 bytes for F32 [2, 4], found 24"),
        ({"dtype": "F16"}, "expected 12 bytes for F16 [2, 3], found 24"),
        ({"dtype": "F7"}, "expected a known dtype, found 'F7'"),
        ({"dtype": ["F32"]}, "expected a known dtype"),
        ({"shape": [-2, -3]}, "expected a shape of whole numbers"),
        ({"shape": [2.0, 3]}, "expected a shape of whole numbers"),
        ({"shape": [2**62, 2**62]}, "found 24"),
        ({"shape": [1] * 17}, "expected a shape of whole numbers"),
        ({"data_offsets": [0, 2**63]}, "expected two data_offsets"),
        ({"data_offsets": [-24, 0]}, "expected two data_offsets"),
        ({"data_offsets": [24, 0]}, "expected 24 bytes for F32 [2, 3], found -24"),
        ({"data_offsets": [8, 32]}, "to end within the file"),
        ({"data_offsets": [2**40, 2**40 + 24]}, "to end within the file"),
        ({"data_offsets": [0]}, "expected two data_offsets"),
        ({"extra": 1}, "expected dtype, shape and data_offsets"),
    ],
)
def test_hostile_entries_are_refused_naming_the_tensor(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    found = refusal(write_raw(tmp_path / "x.safetensors", {"w": {**GOOD, **change}}))
    assert found.startswith("tensor `w`")
    assert text in found


def test_overlaps_and_gaps_are_refused(tmp_path: Path) -> None:
    header = {"a": GOOD, "b": {**GOOD, "data_offsets": [12, 36]}}
    assert "overlaps the tensor before it" in refusal(write_raw(tmp_path / "x", header, bytes(36)))
    header = {"a": GOOD, "b": {**GOOD, "data_offsets": [28, 52]}}
    assert "leaves a gap before it" in refusal(write_raw(tmp_path / "x", header, bytes(52)))


def test_file_longer_or_shorter_than_its_tensors_is_refused(tmp_path: Path) -> None:
    assert "expected " in refusal(write_raw(tmp_path / "x", {"w": GOOD}, bytes(25)))
    assert "truncated" in refusal(write_raw(tmp_path / "x", {"w": GOOD}, bytes(23)))


@pytest.mark.parametrize("length", [0, 1, 2**62, 2**64 - 1, 10_000])
def test_hostile_header_lengths_are_refused(tmp_path: Path, length: int) -> None:
    assert "safetensors header length" in refusal(write_raw(tmp_path / "x", {"w": GOOD}, length=length))


@pytest.mark.parametrize("content", [b"", b"1234567"])
def test_files_too_short_for_a_header_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    assert f"a file of {len(content)} bytes" in refusal(path)


@pytest.mark.parametrize("header", [b"[]", b"{", b"\xff\xff", b'{"a":1,"a":2}', b"[" * 100_000, b'{"w":null}'])
def test_headers_that_are_no_object_of_tensors_are_refused(tmp_path: Path, header: bytes) -> None:
    refusal(write_raw(tmp_path / "x", header))


def test_integer_tensors_may_be_there_but_not_be_read_as_weights(tmp_path: Path) -> None:
    file = SafetensorsFile(write_raw(tmp_path / "x", {"ids": {"dtype": "I64", "shape": [3], "data_offsets": [0, 24]}}))
    with pytest.raises(CheckpointError, match="tensor `ids`: expected F64, F32, F16, BF16, found I64"):
        file.read("ids")


def test_empty_tensors_and_scalars_read(tmp_path: Path) -> None:
    arrays = {"empty": np.zeros((0, 4), np.float32), "scalar": np.float32(3).reshape(())}
    write_safetensors(tmp_path / "x", arrays)
    file = SafetensorsFile(tmp_path / "x")
    assert file.read("empty").shape == (0, 4)
    assert file.read("scalar") == 3


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_values_equal_the_safetensors_library(tmp_path: Path, name: str) -> None:
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("safetensors.torch")
    dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[name]
    values = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)).to(dtype)
    library.save_file({"w": values}, tmp_path / "x")
    np.testing.assert_array_equal(SafetensorsFile(tmp_path / "x").read("w"), values.float().numpy())


@settings(max_examples=300, deadline=None)
@given(
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6),
    cut=st.integers(0, 40),
)
def test_random_corruption_reads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]], cut: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "corrupt.safetensors"
    write_safetensors(path, {"a": np.ones((2, 3), np.float32), "b": np.ones(4, np.float32)}, "F16")
    data = bytearray(path.read_bytes())
    for at, value in flips:
        data[at % len(data)] = value
    path.write_bytes(bytes(data[: len(data) - cut]))
    try:
        file = SafetensorsFile(path)
        for name, entry in file.entries.items():
            assert file.read(name).shape == entry.facts.shape
    except CheckpointError as error:
        assert str(path) in str(error)
