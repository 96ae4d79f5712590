"""GGUF headers: hostile counts, lengths, offsets and types are refused; random corruption never crashes."""

import struct
from pathlib import Path

import numpy as np
import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.errors import CheckpointError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builder.checkpoint import gguf_bytes as make
from tests.tiny_gguf import write_tiny_gguf

HUGE = 2**63 - 1


def refusal(path: Path, data: bytes) -> str:
    with pytest.raises(CheckpointError) as caught:
        make.read(path, data)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_values_of_every_type_read(tmp_path: Path) -> None:
    keys = [
        make.key("a", 0, b"\xff"),
        make.key("b", 1, b"\xff"),
        make.key("c", 5, struct.pack("<i", -7)),
        make.key("d", make.F32_VALUE, struct.pack("<f", 0.5)),
        make.key("e", 7, b"\x01"),
        make.key("f", make.STRING, make.text("héllo")),
        make.key("g", 12, struct.pack("<d", 0.25)),
        make.key("h", make.ARRAY, struct.pack("<IQ2i", 5, 2, 3, -4)),
        make.key("i", make.ARRAY, struct.pack("<IQ", make.STRING, 2) + make.text("x") + make.text("")),
    ]
    found = make.read(tmp_path / "x", make.header(keys)).metadata
    assert [found[k] for k in "abcdefg"] == [255, -1, -7, 0.5, True, "héllo", 0.25]
    assert found["h"].tolist() == [3, -4]
    assert found["i"] == ["x", ""]


def test_shapes_are_rows_first_and_places_count_from_the_file(tmp_path: Path) -> None:
    data = make.header(tensors=[make.tensor("a", [3, 2]), make.tensor("b", [32, 1], make.Q8_0, 32)])
    found = make.read(tmp_path / "x", data + bytes(66)).tensors
    assert (found["a"].shape, found["a"].begin, found["a"].num_bytes) == ((2, 3), len(data), 24)
    assert (found["b"].shape, found["b"].begin, found["b"].num_bytes) == ((1, 32), len(data) + 32, 34)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "readable file"),
        (b"GG", "at least 4 bytes"),
        (make.header(magic=b"GGML"), "GGUF magic: expected GGUF"),
        (make.header(version=1), "GGUF version: expected 2 or 3, found 1"),
        (make.header(version=3 << 24), "GGUF version"),
        (make.header(num_tensors=HUGE), "GGUF number of tensors: expected at most"),
        (make.header(num_keys=HUGE), "GGUF number of keys: expected at most"),
        (make.header([make.text(b"k", length=HUGE)]), "GGUF length of key: expected at most"),
        (make.header([make.key("k", make.STRING, make.text(b"", length=HUGE))]), "GGUF length of value of `k`"),
        (make.header([make.key("k", 99, b"")]), "GGUF type of `k`: expected a GGUF value type, found 99"),
        (make.header([make.key(b"\xff", 4, bytes(4))]), "GGUF key: expected UTF-8"),
        (make.header([make.key("k", make.STRING, make.text(b"\xff"))]), "GGUF value of `k`: expected UTF-8"),
        (make.header([make.key("k", 4, bytes(4))] * 2), "GGUF key `k`: expected once, found twice"),
        (make.header([make.key("k", make.ARRAY, struct.pack("<IQ", 4, HUGE))]), "GGUF length of `k`"),
        (make.header([make.key("k", make.ARRAY, struct.pack("<IQ", 8, HUGE))]), "GGUF length of `k`"),
        (make.header([make.key("k", make.ARRAY, struct.pack("<IQQ", 8, 1, HUGE))]), "GGUF a string of `k`"),
        (make.header([make.key("k", make.ARRAY, struct.pack("<IQ", 9, 1) * 50)]), "GGUF element type of `k`"),
        (make.header(tensors=[make.tensor("w", [])]), "tensor `w`: expected 1 to 4 dimensions, found 0"),
        (make.header(tensors=[make.tensor("w", [1] * 5)]), "expected 1 to 4 dimensions, found 5"),
        (make.header(tensors=[make.tensor("w", [0, 4])]), "tensor `w`: expected dimensions above 0"),
        (make.header(tensors=[make.tensor("w", [HUGE, 4])]), "tensor `w`: expected dimensions above 0"),
        (make.header(tensors=[make.tensor("w", [2**40, 2**40])]), "tensor `w`: expected to end within the file"),
        (make.header(tensors=[make.tensor("w", [31], make.Q8_0)]), "rows in blocks of 32"),
        (make.header(tensors=[make.tensor("w", [4], 999)]), "tensor `w`: expected a known type, found number 999"),
        (make.header(tensors=[make.tensor("w", [4], offset=HUGE)]), "tensor `w`"),
        (make.header(tensors=[make.tensor("w", [4], offset=4)]), "expected an aligned offset"),
        (make.header(tensors=[make.tensor("w", [4])]), "The file is truncated"),
        (make.header(tensors=[make.tensor("w", [4])] * 2) + bytes(64), "tensor `w`"),
        (make.header(tensors=[make.tensor("v", [16]), make.tensor("w", [4], offset=32)]) + bytes(99), "It overlaps"),
        (make.header([make.key("general.alignment", 4, bytes(4))]), "general.alignment: expected a power of two"),
        (make.header([make.key("general.alignment", 4, struct.pack("<I", 48))]), "general.alignment"),
    ],
)
def test_hostile_headers_are_refused(tmp_path: Path, data: bytes, text: str) -> None:
    assert text in refusal(tmp_path / "x.gguf", data)


@pytest.fixture(scope="module")
def tiny_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": 1}
    return write_tiny_gguf(path, "llama", quantization="Q8_0", **sizes).read_bytes()


def open_and_read(path: Path) -> None:
    with open_checkpoint(path) as checkpoint:
        for name, facts in checkpoint.weights.tensors.items():
            values = checkpoint.weights.read(name)
            assert values.shape == facts.shape
            assert np.isfinite(values).all()


def test_a_file_cut_anywhere_is_refused(tmp_path: Path, tiny_bytes: bytes) -> None:
    path = tmp_path / "cut.gguf"
    for end in [*range(0, 200, 7), *range(200, len(tiny_bytes), len(tiny_bytes) // 40)]:
        path.write_bytes(tiny_bytes[:end])
        with pytest.raises(CheckpointError):
            open_and_read(path)


@settings(max_examples=400, deadline=None)
@given(
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=5),
    reach=st.sampled_from([300, 2_000, 12_000, 10**9]),
)
def test_random_corruption_reads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, tiny_bytes: bytes, flips: list[tuple[float, int]], reach: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "corrupt.gguf"
    data = bytearray(tiny_bytes)
    for at, value in flips:
        data[int(at * min(reach, len(data)))] = value
    path.write_bytes(bytes(data))
    try:
        open_and_read(path)
    except CheckpointError as error:
        assert str(path) in str(error)
