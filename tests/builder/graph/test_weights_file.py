"""The external data file: alignment, conversion, strides."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from draftsmith.builder.graph.graph_builder import GraphBuilder
from draftsmith.builder.graph.weights_file import LINE_BYTES, PAGE_BYTES, WeightsFile
from onnx import numpy_helper


def read_back(tensor: onnx.TensorProto, folder: Path) -> np.ndarray:
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    onnx.external_data_helper.load_external_data_for_tensor(copy, str(folder))
    return numpy_helper.to_array(copy)


def test_tensors_are_converted_aligned_and_read_back(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    small, large = random.normal(size=7).astype(np.float32), random.normal(size=(70, 50)).astype(np.float32)
    with WeightsFile(tmp_path / "a.weights") as file:
        tensors = [file.append("small", small, "float32"), file.append("large", large.T, "float16")]

    np.testing.assert_array_equal(read_back(tensors[0], tmp_path), small)
    np.testing.assert_array_equal(read_back(tensors[1], tmp_path), large.T.astype(np.float16))
    offsets = [int(entry.value) for t in tensors for entry in t.external_data if entry.key == "offset"]
    assert offsets[0] % LINE_BYTES == 0
    assert offsets[1] % PAGE_BYTES == 0


def test_pieces_of_a_large_tensor_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftsmith.builder.graph.weights_file.CHUNK_BYTES", 1000)
    array = np.arange(13 * 99, dtype=np.float32).reshape(99, 13).T
    with WeightsFile(tmp_path / "a.weights") as file:
        tensor = file.append("x", array, "float32")

    np.testing.assert_array_equal(read_back(tensor, tmp_path), array)


def test_a_name_is_stored_once(tmp_path: Path) -> None:
    with WeightsFile(tmp_path / "a.weights") as file:
        graph = GraphBuilder(file, opset=23)
        graph.weight("w", np.zeros(3, np.float32))
        assert graph.has_weight("w")
        with pytest.raises(ValueError, match="initializer w exists"):
            graph.weight("w", np.zeros(3, np.float32))


def test_equal_constants_are_one_and_different_ones_are_not(tmp_path: Path) -> None:
    with WeightsFile(tmp_path / "a.weights") as file:
        graph = GraphBuilder(file, opset=23)
        assert graph.constant([1, 2], "int64") == graph.constant([1, 2], "int64")
        names = {graph.constant(v, t) for v, t in (([1], "int64"), (1, "int64"), ([1], "int32"), ([1, 2], "int64"))}
    assert len(names) == 4
