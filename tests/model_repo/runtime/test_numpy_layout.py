"""What a stub built for NumPy 1 sees of our arrays under NumPy 2. Under NumPy 1 nothing is changed."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from draftsmith.model_repo.runtime import numpy_layout
from draftsmith.model_repo.runtime.numpy_layout import adapt_stub

IS_NUMPY_1 = np.lib.NumpyVersion(np.__version__) < "2.0.0"


def old_num_bytes(array: np.ndarray) -> int:
    """``nbytes`` as a pybind11 of NumPy 1's time computes it: items times the int at offset 32 of the dtype."""
    return int(array.size * ctypes.c_int32.from_address(id(array.dtype) + 32).value)


@pytest.fixture
def pb_utils(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.setattr(numpy_layout, "_make_inputs_contiguous", lambda: None)  # would change NumPy for all tests
    module = SimpleNamespace(Tensor=lambda name, array: (name, array), serialize_byte_tensor=None)
    adapt_stub(module)
    return module


@pytest.mark.parametrize("array", [np.arange(5, dtype=np.int32), np.ones((2, 3), np.float32), np.zeros((0,), np.int32)])
def test_numbers_count_their_bytes_and_keep_their_values(pb_utils: SimpleNamespace, array: np.ndarray) -> None:
    name, sent = pb_utils.Tensor("x", array)
    assert name == "x"
    assert old_num_bytes(sent) == array.nbytes
    assert sent.dtype == array.dtype
    np.testing.assert_array_equal(sent, array)


@pytest.mark.skipif(IS_NUMPY_1, reason="needs NumPy 2")
def test_text_is_serialised_as_triton_does(pb_utils: SimpleNamespace) -> None:
    sent = pb_utils.serialize_byte_tensor(np.array([b"ab", b"", "é"], np.object_))
    content = b"\2\0\0\0ab" + b"\0\0\0\0" + b"\2\0\0\0\xc3\xa9"
    assert sent.tobytes() == content
    assert old_num_bytes(sent) == len(content)


@pytest.mark.skipif(not IS_NUMPY_1, reason="needs NumPy 1")
def test_numpy_1_is_left_alone(pb_utils: SimpleNamespace) -> None:
    array = np.arange(3)
    assert pb_utils.Tensor("x", array)[1] is array
    assert pb_utils.serialize_byte_tensor is None
