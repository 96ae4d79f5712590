"""The ONNX body of SpecVocabHead: ``plugins/reference/spec_vocab_head.py`` in float32 operators.

It computes every logit and masks those of tokens that are no candidates. M rows, R ranked rows, V tokens, S a group.
"""

from collections.abc import Mapping
from typing import Literal

import onnx

from .function_builder import FunctionBuilder

RankingKind = Literal["float", "int8", "float8"]
"""Type of w_vocab: hidden's own, or one of 8 bits, which has scales."""
INPUTS = ("hidden", "w_down", "w_vocab", "w_head", "request_of_row", "w_vocab_scales")
OUTPUTS = ("candidate_ids", "candidate_logits", "log_sum_exp")
_MOST_QUANTUM = 32512.0
_NO_QUANTUM_BELOW = 1e-30
_NO_NUMBER, _LEAST_SCORE = -1e38, -1e37  # NaN ranks below -infinity
_LEAST_LOGIT = -3.4e38  # a candidate's logit of -infinity ranks above what is no candidate


def make_head_function(ranking: RankingKind, opset: int, words: Mapping[str, str]) -> onnx.FunctionProto:
    """The function for a type of w_vocab; ``words``: string attributes that calls carry and the body does not read."""
    body = FunctionBuilder()
    hidden = body.cast("hidden", "float32")  # [M, d]
    projected = _project(body, hidden, ranking)  # [M, r]
    is_good = body.op("And", _all_finite(body, hidden), _all_finite(body, projected))  # [M, 1]
    scores = _rank(body, projected, ranking)  # [M, R]
    members = _share(body, _choose(body, scores, is_good))  # bool [M, V]
    _find_best(body, hidden, members, is_good)
    inputs = INPUTS[:-1] if ranking == "float" else INPUTS
    defaults: dict[str, int | str] = {"group_size": 1, "share_candidates": 1, **words}
    return body.finish("SpecVocabHead", inputs, OUTPUTS, required=("k", "out"), defaults=defaults, opset=opset)


def _project(body: FunctionBuilder, hidden: str, ranking: RankingKind) -> str:
    """h' [M, r], rounded to hidden's type, or to whole multiples of a row's scale."""
    projected = body.op("MatMul", hidden, _columns(body, "w_down"))
    if ranking != "int8":
        return body.cast(body.op("CastLike", projected, "hidden"), "float32")
    sizes = body.op("Abs", projected)
    most = body.op("ReduceMax", sizes, body.axes(-1), keepdims=1)  # [M, 1]
    quanta = body.op("Round", body.op("Mul", projected, body.op("Div", body.constant(_MOST_QUANTUM), most)))
    scaled = body.op("Mul", quanta, body.op("Div", most, body.constant(_MOST_QUANTUM)))
    is_nothing = body.op("Less", most, body.constant(_NO_QUANTUM_BELOW))
    whole = body.op("Where", is_nothing, body.constant(0.0), scaled)
    return body.op("Where", _is_finite(body, projected), whole, body.constant(float("nan")))


def _rank(body: FunctionBuilder, projected: str, ranking: RankingKind) -> str:
    """Scores float32 [M, R] as they are ranked."""
    scores = body.op("MatMul", projected, _columns(body, "w_vocab"))
    if ranking != "float":
        scores = body.op("Mul", scores, body.op("Unsqueeze", "w_vocab_scales", body.axes(0)))
    scores = body.cast(body.cast(scores, "float16"), "float32")
    raised = body.op("Max", scores, body.constant(_LEAST_SCORE))
    return body.op("Where", body.op("IsNaN", scores), body.constant(_NO_NUMBER), raised)


def _choose(body: FunctionBuilder, scores: str, is_good: str) -> str:
    """A row's own candidates as ones, float32 [M, V]; a broken row has none."""
    one, size = body.constant(1, "int64"), body.attribute("group_size")
    rounded_up = body.op("Add", body.attribute("k"), body.op("Sub", size, one))
    num_kept = body.op("Unsqueeze", body.op("Div", rounded_up, size), body.axes(0))
    _, kept = body.ops("TopK", scores, num_kept, num_outputs=2, axis=-1)
    nobody = body.op("Expand", body.constant(0.0), body.op("Shape", scores))
    ones = body.op("Expand", body.cast(is_good, "float32"), body.op("Shape", kept))
    groups = body.op("Unsqueeze", body.op("ScatterElements", nobody, kept, ones, axis=1), body.axes(2))  # [M, R, 1]
    repeats = body.op("Concat", body.axes(1, 1), body.op("Unsqueeze", size, body.axes(0)), axis=0)
    tokens = body.op("Reshape", body.op("Tile", groups, repeats), body.axes(0, -1))  # [M, R S]
    num_vocab = body.op("Shape", "w_head", start=0, end=1)
    return body.op("Slice", tokens, body.axes(0), num_vocab, body.axes(1))


def _share(body: FunctionBuilder, members: str) -> str:
    """The union over rows of a request, where candidates are shared: bool [M, V]."""
    row, column = (body.op("Unsqueeze", "request_of_row", body.axes(axis)) for axis in (0, 1))
    together = body.cast(body.op("Equal", row, column), "float32")  # [M, M]
    alone = body.op("EyeLike", together)
    is_shared = body.op("Equal", body.attribute("share_candidates"), body.constant(1, "int64"))
    sharing = body.op("Where", is_shared, together, alone)
    return body.op("Greater", body.op("MatMul", sharing, members), body.constant(0.0))


def _find_best(body: FunctionBuilder, hidden: str, members: str, is_good: str) -> None:
    """The outputs: the best of the members' logits, and their log-sum-exp."""
    nothing, nan = body.constant(float("-inf")), body.constant(float("nan"))
    logits = body.op("Where", members, body.op("MatMul", hidden, _columns(body, "w_head")), nothing)  # [M, V]
    is_nan = body.op("IsNaN", logits)
    num_nan = body.op("ReduceSum", body.cast(is_nan, "float32"), body.axes(-1), keepdims=1)
    is_broken = body.op("Or", body.op("Not", is_good), body.op("Greater", num_nan, body.constant(0.0)))  # [M, 1]
    plain = body.op("Where", is_nan, nothing, logits)
    ranked = body.op("Where", members, body.op("Max", plain, body.constant(_LEAST_LOGIT)), nothing)
    num_outputs = body.op("Unsqueeze", body.attribute("out"), body.axes(0))
    values, tokens = body.ops("TopK", ranked, num_outputs, num_outputs=2, axis=-1)  # [M, out]
    is_missing = body.op("Or", body.op("Equal", values, nothing), is_broken)
    ids = body.op("Where", is_missing, body.constant(-1, "int32"), body.cast(tokens, "int32"))
    best = body.op("GatherElements", plain, tokens, axis=1)
    body.named("candidate_ids", ids)
    body.named("candidate_logits", body.op("Where", is_broken, nan, best))
    greatest = body.op("ReduceMax", plain, body.axes(-1), keepdims=1)  # [M, 1]
    shifted = body.op("Exp", body.op("Sub", plain, greatest))
    total = body.op("Log", body.op("ReduceSum", shifted, body.axes(-1), keepdims=1))
    finite = body.op("Where", _is_finite(body, greatest), body.op("Add", greatest, total), greatest)
    body.named("log_sum_exp", body.op("Squeeze", body.op("Where", is_broken, nan, finite), body.axes(1)))


def _columns(body: FunctionBuilder, weight: str) -> str:
    """``weight`` [n, m] as float32 [m, n]."""
    return body.op("Transpose", body.cast(weight, "float32"), perm=[1, 0])


def _is_finite(body: FunctionBuilder, values: str) -> str:
    return body.op("Less", body.op("Abs", values), body.constant(float("inf")))


def _all_finite(body: FunctionBuilder, values: str) -> str:
    """bool [M, 1]."""
    share = body.op("ReduceMin", body.cast(_is_finite(body, values), "float32"), body.axes(-1), keepdims=1)
    return body.op("Greater", share, body.constant(0.0))
