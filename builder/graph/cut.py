"""Makes a graph start later: a value that it computed becomes an input, and what led to it alone is dropped."""

from collections.abc import Sequence

import onnx
from onnx import helper

from .graph_builder import Dim
from .weights_file import ONNX_TYPES


def cut_before(model: onnx.ModelProto, value: str, dtype: str, shape: Sequence[Dim], dropped: str) -> onnx.ModelProto:
    """A copy of ``model`` that takes ``value`` as an input, at the place of the input ``dropped``.

    The same initializers are named where they are still read; nothing else may read ``dropped``.
    """
    graph = model.graph
    needed = {output.name for output in graph.output}
    nodes: list[onnx.NodeProto] = []
    for node in reversed(graph.node):
        if needed.isdisjoint(node.output) or value in node.output:
            continue
        nodes.append(node)
        needed.update(node.input)
    if dropped in needed:
        raise ValueError(f"{dropped} is read behind {value}")
    given = helper.make_tensor_value_info(value, ONNX_TYPES[dtype], list(shape))
    inputs = [given if known.name == dropped else known for known in graph.input]
    kept = [tensor for tensor in graph.initializer if tensor.name in needed]
    later = helper.make_graph(nodes[::-1], graph.name, inputs, graph.output, initializer=kept)
    made = helper.make_model(later, opset_imports=model.opset_import, producer_name=model.producer_name)
    made.ir_version = model.ir_version
    return made
