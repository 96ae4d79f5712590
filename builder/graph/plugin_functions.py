"""The operators of our TensorRT plugins as ONNX nodes and functions, so that any ONNX runtime runs a graph with them.

TensorRT's parser prefers a plugin of the same name to a function's body. The bodies say what ``plugins.reference``
says, in float32; they materialise every logit and are for checking, not for speed.
"""

from collections.abc import Sequence

import onnx
from draftsmith.plugins.tensorrt_library import NAMESPACE, PLUGIN_VERSION
from onnx import helper

from . import accept_function, head_function
from .head_function import RankingKind

OPSET = 21
# Which plugin the parser takes; TensorRT before 10 does not look at a node's domain.
_WORDS = {"plugin_version": PLUGIN_VERSION, "plugin_namespace": NAMESPACE}
_OUTPUTS = {"SpecVocabHead": head_function.OUTPUTS, "LossyAccept": accept_function.OUTPUTS}
_FLOAT_OUTPUTS = ("candidate_logits", "log_sum_exp", "divergence", "regret_nats")
_MATRIX_OUTPUTS = ("candidate_ids", "candidate_logits", "accepted_nodes")


def make_head_node(
    inputs: Sequence[str], *, k: int, out: int, group_size: int = 1, share_candidates: bool = True
) -> onnx.NodeProto:
    """A SpecVocabHead of hidden, w_down, w_vocab, w_head, request_of_row, and w_vocab_scales for an 8-bit w_vocab.

    Types and shapes as in ``csrc/tensorrt/spec_vocab_head_operator.h``.
    """
    attributes = {"k": k, "out": out, "group_size": group_size, "share_candidates": int(share_candidates)}
    return _make_node("SpecVocabHead", inputs, head_function.OUTPUTS, attributes)


def make_accept_node(inputs: Sequence[str], *, num_candidates: int = 0) -> onnx.NodeProto:
    """A LossyAccept of ``inputs`` as in ``csrc/tensorrt/lossy_accept_operator.h``: 8, or 10 with candidates."""
    return _make_node("LossyAccept", inputs, accept_function.OUTPUTS, {"num_candidates": num_candidates})


def _make_node(name: str, inputs: Sequence[str], outputs: Sequence[str], attributes: dict[str, int]) -> onnx.NodeProto:
    return helper.make_node(name, list(inputs), list(outputs), domain=NAMESPACE, name=name, **attributes, **_WORDS)


def declare_outputs(node: onnx.NodeProto) -> list[onnx.ValueInfoProto]:
    """The outputs of a node of ours as graph outputs: types and ranks, no sizes."""
    real, whole = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
    return [
        helper.make_tensor_value_info(
            name, real if output in _FLOAT_OUTPUTS else whole, [None] * (2 if output in _MATRIX_OUTPUTS else 1)
        )
        for name, output in zip(node.output, _OUTPUTS[node.op_type], strict=True)
    ]


def model_with_functions(graph: onnx.GraphProto, ranking: RankingKind = "float") -> onnx.ModelProto:
    """A model of ``graph`` with the bodies of those operators that its nodes name.

    ``ranking``: type of the w_vocab of its SpecVocabHead nodes. Raises ``ValueError`` where some LossyAccept has
    candidates and another none.
    """
    used = {(node.op_type, len(node.input)) for node in graph.node if node.domain == NAMESPACE}
    functions = []
    if "SpecVocabHead" in (name for name, _ in used):
        functions.append(head_function.make_head_function(ranking, OPSET, _WORDS))
    sizes = {count for name, count in used if name == "LossyAccept"}
    if len(sizes) > 1:
        raise ValueError("LossyAccept: expected all with candidates or all without, found both")
    for count in sizes:
        has_candidates = count > len(accept_function.INPUTS)
        functions.append(accept_function.make_accept_function(has_candidates=has_candidates, opset=OPSET, words=_WORDS))
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(NAMESPACE, 1)]
    return helper.make_model(
        graph, functions=functions, opset_imports=imports, ir_version=10, producer_name="draftsmith"
    )
