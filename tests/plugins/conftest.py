"""The compiled CPU operators, and a way to run one of them in ONNX Runtime with chosen kernels."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from draftsmith.plugins.cpu_library import build_library, find_compiler
from onnx import helper

KERNELS = ("generic", "avx2", "avxvnni", "avx512vnni", "amx")
Arrays = list[npt.NDArray[Any]]
Run = Callable[..., Arrays]
LIBRARY_VARIABLE = "DRAFTSMITH_TEST_LIBRARY"
"""A compiled library to be tested instead of one of the usual kind: test_sanitizers.py."""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get(LIBRARY_VARIABLE):
        return Path(given)
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("needs x86-64 Linux and a C compiler")
    return build_library(tmp_path_factory.mktemp("cpu"), compiler)


@pytest.fixture
def run_operator(library: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run(kernels, operator, inputs, num_returned, **attributes)``: outputs (floats, or ``returned_types``).

    An input None is left out.
    """

    def run(
        kernels: str,
        operator: str,
        inputs: list[npt.NDArray[Any] | None],
        num_returned: int = 1,
        *,
        returned_types: tuple[int, ...] | None = None,
        threads: int = 2,
        **attributes: Any,
    ) -> Arrays:
        monkeypatch.setenv("DRAFTSMITH_CPU", kernels)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        try:
            options.register_custom_ops_library(str(library))
        except Exception as error:
            if "expected kernels that this processor runs" in str(error):
                pytest.skip(f"needs a processor with {kernels}")
            raise
        feeds = {f"x{i}": array for i, array in enumerate(inputs) if array is not None}
        types = returned_types or (onnx.TensorProto.FLOAT,) * num_returned
        model = one_node_model(operator, inputs, feeds, types, attributes)
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        outputs: Arrays = session.run(None, feeds)
        return outputs

    return run


def one_node_model(
    operator: str,
    inputs: list[npt.NDArray[Any] | None],
    feeds: Mapping[str, npt.NDArray[Any]],
    types: tuple[int, ...],
    attributes: Mapping[str, Any],
) -> onnx.ModelProto:
    names = ["" if array is None else f"x{i}" for i, array in enumerate(inputs)]
    outputs = [f"y{i}" for i in range(len(types))]
    node = helper.make_node(operator, names, outputs, domain="draftsmith", **attributes)
    graph = helper.make_graph(
        [node],
        operator,
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(outputs, types, strict=True)],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("draftsmith", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def random_floats(seed: int, *shape: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
