"""The ONNX bodies of our operators, run by ONNX Runtime, against the NumPy reference."""

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from draftsmith.builder.graph.plugin_functions import (
    declare_outputs,
    make_accept_node,
    make_head_node,
    model_with_functions,
)
from draftsmith.plugins.reference.spec_vocab_head import HeadOptions, HeadOutputs, HeadWeights, spec_vocab_head
from onnx import helper, numpy_helper

Array = npt.NDArray[Any]
SHAPES = [(5, 64, 8, 300, 40, 8, 1), (1, 33, 3, 111, 1, 1, 1), (4, 48, 6, 250, 250, 16, 1), (6, 64, 8, 301, 64, 8, 16)]


def run_model(
    node: onnx.NodeProto, feeds: Mapping[str, Array], ranking: Any = "float", stored: Sequence[str] = ()
) -> dict[str, Array]:
    """``stored``: those that are weights of the graph."""
    weights = [numpy_helper.from_array(feeds[name], name) for name in stored]
    feeds = {name: array for name, array in feeds.items() if name not in stored}
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    graph = helper.make_graph([node], "one", values, declare_outputs(node), weights)
    model = model_with_functions(graph, ranking)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip(node.output, session.run(list(node.output), dict(feeds)), strict=True))


def make_head(rows: int, hidden: int, rank: int, vocab: int, group_size: int, *, int8: bool) -> dict[str, Array]:
    """Whole numbers, so that sums are exact and ties are many."""
    draw = np.random.default_rng(vocab)
    num_ranked = -(-vocab // group_size)
    feeds: dict[str, Array] = {
        "hidden": draw.integers(-3, 4, (rows, hidden)).astype(np.float16),
        "w_down": (draw.integers(-2, 3, (rank, hidden)) / 8).astype(np.float16),
        "w_vocab": draw.integers(-3, 4, (num_ranked, rank)).astype(np.int8 if int8 else np.float16),
        "w_head": draw.integers(-3, 4, (vocab, hidden)).astype(np.float16),
        "request_of_row": (np.arange(rows) // 2).astype(np.int32),
    }
    if int8:
        feeds["w_vocab_scales"] = np.exp2(draw.integers(-3, 2, num_ranked)).astype(np.float32)
    return feeds


def expect_head(
    feeds: Mapping[str, Array], k: int, out: int, group_size: int, *, shared: bool = True, ranking: Any = None
) -> HeadOutputs:
    weights = HeadWeights(
        w_down=feeds["w_down"],
        w_vocab=feeds["w_vocab"],
        w_head=feeds["w_head"],
        w_vocab_scales=feeds.get("w_vocab_scales"),
    )
    ranking = ranking or str(feeds["w_vocab"].dtype)
    options = HeadOptions(
        hidden_type="float16", ranking_type=ranking, num_candidates=k, num_outputs=out, group_size=group_size
    )
    return spec_vocab_head(feeds["hidden"], weights, options, feeds["request_of_row"] if shared else None)


def compare(outputs: Mapping[str, Array], expected: HeadOutputs) -> None:
    np.testing.assert_array_equal(outputs["candidate_ids"], expected.candidate_ids)
    np.testing.assert_array_equal(outputs["candidate_logits"], expected.candidate_logits.astype(np.float32))
    np.testing.assert_allclose(outputs["log_sum_exp"], expected.log_sum_exp, rtol=1e-5)


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("sizes", SHAPES)
def test_the_heads_body_gives_the_references_candidates(sizes: tuple[int, ...], int8: bool) -> None:
    rows, hidden, rank, vocab, k, out, group_size = sizes
    feeds = make_head(rows, hidden, rank, vocab, group_size, int8=int8)
    node = make_head_node(list(feeds), k=k, out=out, group_size=group_size)

    outputs = run_model(node, feeds, "int8" if int8 else "float")

    compare(outputs, expect_head(feeds, k, out, group_size))


@pytest.mark.parametrize("sizes", SHAPES)
def test_the_heads_body_ranks_by_8_bit_floats(sizes: tuple[int, ...]) -> None:
    rows, hidden, rank, vocab, k, out, group_size = sizes
    feeds = make_head(rows, hidden, rank, vocab, group_size, int8=True)
    feeds["w_vocab"] = (feeds["w_vocab"] / 4).astype(ml_dtypes.float8_e4m3fn)
    node = make_head_node(list(feeds), k=k, out=out, group_size=group_size)

    outputs = run_model(node, feeds, "float8", stored=("w_vocab",))

    wide = feeds | {"w_vocab": feeds["w_vocab"].astype(np.float32)}
    compare(outputs, expect_head(wide, k, out, group_size, ranking="float8_e4m3"))


def test_rows_share_nothing_where_the_attribute_says_so() -> None:
    feeds = make_head(6, 64, 8, 300, 1, int8=False)
    node = make_head_node(list(feeds), k=20, out=20, share_candidates=False)

    outputs = run_model(node, feeds)

    compare(outputs, expect_head(feeds, 20, 20, 1, shared=False))
    shared = expect_head(feeds, 20, 20, 1)
    assert not np.array_equal(outputs["log_sum_exp"], shared.log_sum_exp.astype(np.float32))


def test_rows_that_are_not_finite_give_nothing_and_harm_no_other() -> None:
    feeds = make_head(6, 64, 8, 300, 1, int8=False)
    feeds["hidden"][1, 5] = np.nan
    feeds["hidden"][2, 0] = np.inf
    feeds["hidden"][4] *= 4000  # h' overflows fp16
    feeds["w_head"][17, 3] = -np.inf
    feeds["w_vocab"][5] = np.nan

    outputs = run_model(make_head_node(list(feeds), k=300, out=10), feeds)

    compare(outputs, expect_head(feeds, 300, 10, 1))
    assert (outputs["candidate_ids"][1] == -1).all() and np.isnan(outputs["log_sum_exp"][2])


def test_candidates_that_are_missing_are_marked() -> None:
    feeds = make_head(2, 64, 8, 30, 16, int8=False)
    feeds["hidden"][1] = -feeds["hidden"][0]
    feeds["w_vocab"][0] = 0  # so one of the rows prefers the second group, which has 14 tokens

    outputs = run_model(make_head_node(list(feeds), k=16, out=16, group_size=16, share_candidates=False), feeds)

    compare(outputs, expect_head(feeds, 16, 16, 16, shared=False))
    missing = outputs["candidate_ids"] == -1
    assert missing.sum() == 2 and (outputs["candidate_logits"][missing] == -np.inf).all()


@pytest.mark.parametrize("num_candidates", [0, 7])
def test_an_acceptance_node_is_a_plugin_with_seven_outputs(num_candidates: int) -> None:
    names = [f"input{i}" for i in range(10 if num_candidates else 8)]

    node = make_accept_node(names, num_candidates=num_candidates)
    outputs = declare_outputs(node)

    attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    assert (node.op_type, node.domain, list(node.input)) == ("LossyAccept", "draftsmith", names)
    assert attributes["num_candidates"] == num_candidates
    assert [len(one.type.tensor_type.shape.dim) for one in outputs] == [2, 1, 1, 1, 1, 1, 1]
    real = [one.name for one in outputs if one.type.tensor_type.elem_type == onnx.TensorProto.FLOAT]
    assert real == ["divergence", "regret_nats"]
