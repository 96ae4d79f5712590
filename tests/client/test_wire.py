"""Tensors as bytes: worked cases, tritonclient as the oracle, and hostile content."""

import contextlib

import numpy as np
import pytest
from draftsmith.client.wire import pack, unpack
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.utils import serialize_byte_tensor


def test_text_is_length_and_utf8():
    assert pack("BYTES", ["é", ""]) == b"\x02\x00\x00\x00\xc3\xa9\x00\x00\x00\x00"


def test_numbers_are_little_endian():
    assert pack("INT32", [1, -1]) == b"\x01\x00\x00\x00\xff\xff\xff\xff"
    assert pack("UINT64", [2**64 - 1]) == b"\xff" * 8
    assert pack("FP32", [1.5]) == b"\x00\x00\xc0\x3f"
    assert pack("BOOL", [True, False]) == b"\x01\x00"


@given(st.lists(st.binary(max_size=300), min_size=1))
def test_bytes_are_tritonclients_bytes(values):
    assert pack("BYTES", values) == serialize_byte_tensor(np.array(values, dtype=object)).item()


@given(
    st.one_of(
        st.tuples(st.just("BYTES"), st.lists(st.binary())),
        st.tuples(st.just("INT32"), st.lists(st.integers(-(2**31), 2**31 - 1))),
        st.tuples(st.just("UINT64"), st.lists(st.integers(0, 2**64 - 1))),
        st.tuples(st.just("FP32"), st.lists(st.floats(width=32, allow_nan=False))),
        st.tuples(st.just("BOOL"), st.lists(st.booleans())),
    )
)
def test_unpack_reverses_pack(case):
    datatype, values = case
    assert list(unpack(datatype, [len(values)], pack(datatype, values))) == values


@pytest.mark.parametrize(
    ("datatype", "shape", "content", "message"),
    [
        ("INT32", [2], b"\0" * 4, "4 bytes do not fill"),
        ("INT32", [1], b"\0" * 5, "5 bytes do not fill"),
        ("BYTES", [1], b"\0\0", "has no length"),
        ("BYTES", [1], b"\xff\xff\xff\xffa", "cut short"),
        ("BYTES", [2], b"\1\0\0\0a", "1 elements do not fill"),
        ("FP64", [1], b"\0" * 8, "FP64 is not one of the contract's"),
    ],
)
def test_content_that_does_not_fit_is_refused(datatype, shape, content, message):
    with pytest.raises(ValueError, match=message):
        unpack(datatype, shape, content)


@given(
    st.sampled_from(["BYTES", "INT32", "UINT64", "FP32", "BOOL"]),
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 5)),
    st.binary(),
)
def test_any_content_gives_values_or_a_value_error(datatype, shape, content):
    with contextlib.suppress(ValueError):
        unpack(datatype, shape, content)
