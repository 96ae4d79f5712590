"""The ONNX body of LossyAccept: ``plugins/reference/lossy_accept.py`` in operators, request after request.

B requests, N nodes, V tokens, C candidates. Numbers are float64; it is for checking, not for speed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx
from draftsmith.plugins.accept_kernel import SAMPLED, SHARED_NOISE
from draftsmith.plugins.reference.accept_step import Rule

from .accept_chosen import step_chosen, step_greedy
from .accept_sampled import step_sampled
from .accept_step import Node, Step, find_children, find_strength
from .accept_target import RowParams, find_target, is_broken, position_key
from .function_builder import FunctionBuilder
from .function_values import LoopResult, Value, apply, choose_fields, constant, loop, where

INPUTS = ("logits", "parents", "token_ids", "num_nodes", "row_floats", "row_ints", "row_keys", "relaxation")
CANDIDATE_INPUTS = ("candidate_ids", "candidate_log_probs")
OUTPUTS = (
    "accepted_nodes",
    "accepted_length",
    "bonus_token",
    "divergence",
    "regret_nats",
    "flags",
    "recovery_state",
)
_TYPES = ("int32", "int32", "int32", "float32", "float32", "int32", "int32")
_RUN = 3  # tokens in a row that begin recovery, and that end it


def make_accept_function(*, has_candidates: bool, opset: int, words: Mapping[str, str]) -> onnx.FunctionProto:
    """The function with or without q of a sampled draft; ``words``: string attributes that the body does not read."""
    body = FunctionBuilder()
    logits = Value(body, body.cast("logits", "float32"), "float32")
    inputs = {name: Value(body, name, "int32") for name in INPUTS if name != "logits"}
    inputs |= {name: Value(body, name, "float32") for name in ("row_floats", "relaxation")}
    if has_candidates:
        inputs |= {"candidate_ids": Value(body, "candidate_ids", "int32")}
        inputs |= {"candidate_log_probs": Value(body, "candidate_log_probs", "float32")}

    def walk_request(request: Value, _: Sequence[Value]) -> LoopResult:
        given = _Request(logits.at(request), {name: value.at(request) for name, value in inputs.items()})
        return LoopResult(constant(request, True, "bool"), (), _walk(given))

    results = loop("request", logits.size(), [], walk_request)
    for name, value, dtype in zip(OUTPUTS, results, _TYPES, strict=True):
        body.named(name, value.cast(dtype).name)
    names = (*INPUTS, *CANDIDATE_INPUTS) if has_candidates else INPUTS
    defaults: dict[str, int | str] = {"num_candidates": 0, **words}
    return body.finish("LossyAccept", names, OUTPUTS, required=(), defaults=defaults, opset=opset)


@dataclass(frozen=True, slots=True)
class _Request:
    """``logits`` [N, V] and the other inputs of a request."""

    logits: Value
    inputs: Mapping[str, Value]

    def number(self, column: int) -> Value:
        """float64 scalar of row_floats."""
        return self.inputs["row_floats"].at(column).cast("float64")

    def whole(self, column: int) -> Value:
        """int64 scalar of row_ints."""
        return self.inputs["row_ints"].at(column).cast("int64")

    def key(self, column: int) -> Value:
        """int64 scalar of two words of row_keys, the low one first."""
        words = self.inputs["row_keys"].cast("int64")
        low = apply("BitwiseAnd", words.at(2 * column), 2**32 - 1)
        return words.at(2 * column + 1) * 2**32 + low

    def has_flag(self, number: int) -> Value:
        """bool scalar: a bit of the flags."""
        return apply("BitwiseAnd", self.whole(2), number) > 0

    def params(self) -> RowParams:
        """The row's parameters."""
        return RowParams(
            temperature=self.number(0),
            top_p=self.number(1),
            min_p=self.number(2),
            first=self.number(3),
            second=self.number(4),
            left=self.number(5) - self.number(6),
            recovery_limit=self.number(7),
            rule=self.whole(0),
            top_k=self.whole(1),
            is_shared=self.has_flag(SHARED_NOISE),
            is_sampled=self.has_flag(SAMPLED),
            seed=self.key(0),
            position=self.key(1),
        )


def _walk(request: _Request) -> Sequence[Value]:
    """The outputs of a request, in their order."""
    params = request.params()
    parents, tokens = (request.inputs[name].cast("int64") for name in ("parents", "token_ids"))
    is_node = parents.indices() < request.inputs["num_nodes"].cast("int64")
    start = request.whole(3)
    zero, nothing = constant(start, 0, "int64"), constant(start, 0.0, "float64")
    none, no = parents.filled(-1, "int64"), constant(start, False, "bool")

    def visit(_: Value, state: Sequence[Value]) -> LoopResult:
        node, length, spent, regret, recovery, _bonus, path, _broken = state
        row = request.logits.at(node)
        broken = is_broken(row)
        target = find_target(where(broken, 0.0, row), params)
        children = find_children(target, is_node & parents.equals(node), tokens)
        in_recovery = (params.recovery_limit > 0) & (recovery >= _RUN)
        relaxation = request.inputs["relaxation"].at(node).cast("float64")
        strength = find_strength(params, spent, where(in_recovery, 0.0, relaxation))
        place = Node(
            target=target,
            children=children,
            strength=strength,
            key=position_key(params.seed, params.position + length),
            is_shared=params.is_shared,
        )
        step = _decide(request, params, place, node)
        is_low = target.p.at(step.token) < params.recovery_limit
        after = where(params.recovery_limit > 0, _advance_recovery(recovery, is_low), recovery)
        goes_on = (step.child >= 0) & ~broken
        length_after = where(goes_on, length + 1, length)
        marked = path.put(length.unsqueeze(0), step.child.unsqueeze(0))
        return LoopResult(
            goes_on,
            (
                where(goes_on, step.child, node),
                where(broken, 0, length_after),
                where(broken, 0.0, spent + step.spent),
                where(broken, 0.0, regret + step.regret),
                where(broken, start, after),
                where(broken, -1, step.token),
                where(broken, none, where(goes_on, marked, path)),
                broken,
            ),
        )

    state = [zero, zero, nothing, nothing, start, zero, none, no]
    _, length, spent, regret, recovery, bonus, path, broken = loop("walk", parents.size(), state, visit)
    return path, length, bonus, spent, regret, broken, recovery


def _decide(request: _Request, params: RowParams, node: Node, index: Value) -> Step:
    greedy = step_greedy(node.target, node.children, node.strength)
    step = step_chosen(node)
    if "candidate_ids" in request.inputs:
        ids = request.inputs["candidate_ids"].at(index).cast("int64")
        log_probs = request.inputs["candidate_log_probs"].at(index).cast("float64")
        is_drawn = params.is_sampled & node.children.is_child.any() & ~params.rule.equals(int(Rule.THRESHOLD))
        step = choose_fields(is_drawn, step_sampled(node, ids, log_probs), step)
    return choose_fields(params.is_greedy, greedy, step)


def _advance_recovery(state: Value, is_low: Value) -> Value:
    before = where(is_low, state + 1, 0)
    within = where(is_low, _RUN, (state + 1) % (2 * _RUN))
    return where(state < _RUN, before, within)
