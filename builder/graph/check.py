"""Checks a written graph: the ONNX checker, and that every dimension of every input and output has a name or a size."""

from pathlib import Path

import onnx

from ..errors import BuildError


def check_graph(path: Path) -> None:
    """Raise ``BuildError`` for a graph that breaks ONNX's rules; contrib operators are checked by their runtimes."""
    try:
        onnx.checker.check_model(path)
    except onnx.checker.ValidationError as error:
        raise BuildError("graph", expected="valid ONNX", found=str(error), where=path.name) from error
    graph = onnx.load(path, load_external_data=False).graph
    for value in (*graph.input, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if not dim.dim_param and not dim.dim_value:
                raise BuildError("dimension", expected="a name or a size", found="neither", where=value.name)
