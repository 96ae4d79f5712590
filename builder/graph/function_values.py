"""Typed values over ``FunctionBuilder``: Python's operators write ONNX nodes, numbers become constants.

A node belongs to the innermost body that one of its inputs belongs to, so what does not change in a loop is outside.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import onnx
from onnx import helper

from .function_builder import ELEMENT_TYPES, FunctionBuilder

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Number = float | int
Record = TypeVar("Record", bound="DataclassInstance")


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor in a function under construction: where it is made, its name, its element type."""

    body: FunctionBuilder
    name: str
    dtype: str

    def __add__(self, other: "Value | Number") -> "Value":
        return apply("Add", self, other)

    def __radd__(self, other: Number) -> "Value":
        return apply("Add", other, self)

    def __sub__(self, other: "Value | Number") -> "Value":
        return apply("Sub", self, other)

    def __rsub__(self, other: Number) -> "Value":
        return apply("Sub", other, self)

    def __mul__(self, other: "Value | Number") -> "Value":
        return apply("Mul", self, other)

    def __rmul__(self, other: Number) -> "Value":
        return apply("Mul", other, self)

    def __truediv__(self, other: "Value | Number") -> "Value":
        return apply("Div", self, other)

    def __rtruediv__(self, other: Number) -> "Value":
        return apply("Div", other, self)

    def __mod__(self, other: Number) -> "Value":
        return apply("Mod", self, other)

    def __neg__(self) -> "Value":
        return apply("Neg", self)

    def __lt__(self, other: "Value | Number") -> "Value":
        return apply("Less", self, other, dtype="bool")

    def __le__(self, other: "Value | Number") -> "Value":
        return apply("LessOrEqual", self, other, dtype="bool")

    def __gt__(self, other: "Value | Number") -> "Value":
        return apply("Greater", self, other, dtype="bool")

    def __ge__(self, other: "Value | Number") -> "Value":
        return apply("GreaterOrEqual", self, other, dtype="bool")

    def __and__(self, other: "Value") -> "Value":
        return apply("And", self, other)

    def __or__(self, other: "Value") -> "Value":
        return apply("Or", self, other)

    def __invert__(self) -> "Value":
        return apply("Not", self)

    def __xor__(self, other: "Value | Number") -> "Value":
        return apply("BitwiseXor", self, other)

    def equals(self, other: "Value | Number") -> "Value":
        """Elementwise, as ``==`` would be."""
        return apply("Equal", self, other, dtype="bool")

    def exp(self) -> "Value":
        """e to the power of it."""
        return apply("Exp", self)

    def log(self) -> "Value":
        """Natural."""
        return apply("Log", self)

    def cast(self, dtype: str) -> "Value":
        """Integers of another sign keep their bits."""
        return self if dtype == self.dtype else Value(self.body, self.body.cast(self.name, dtype), dtype)

    def shift_right(self, count: int) -> "Value":
        """int64 as 64 bits without a sign."""
        return apply("BitShift", self.cast("uint64"), count, direction="RIGHT").cast("int64")

    def sum(self, axis: int = -1) -> "Value":
        """Of numbers over one axis, or how many are true (int64); the axis is gone."""
        values = self.cast("int64") if self.dtype == "bool" else self
        return apply("ReduceSum", values, axes(values, axis), keepdims=0)

    def max(self, axis: int = -1) -> "Value":
        """Over one axis; the axis is gone."""
        return apply("ReduceMax", self, axes(self, axis), keepdims=0)

    def any(self, axis: int = -1) -> "Value":
        """Whether one is true over an axis; the axis is gone."""
        return self.sum(axis) > 0

    def cumulative(self, *, exclusive: bool = False, reverse: bool = False) -> "Value":
        """Sums from the first element of a vector on."""
        zero = constant(self, 0, "int64")
        return apply("CumSum", self, zero, exclusive=int(exclusive), reverse=int(reverse))

    def first_true(self) -> "Value":
        """int64: the place in a vector; 0 where none is."""
        return apply("ArgMax", self.cast("int32"), axis=0, keepdims=0, dtype="int64")

    def last_true(self) -> "Value":
        """int64: the place in a vector; of none the last."""
        return apply("ArgMax", self.cast("int32"), axis=0, keepdims=0, select_last_index=1, dtype="int64")

    def at(self, index: "Value | int") -> "Value":
        """Elements of the first axis: one for a scalar, as many as there are for a vector."""
        return apply("Gather", self, as_value(self, index, "int64"), axis=0)

    def unsqueeze(self, axis: int) -> "Value":
        """A new axis of one."""
        return apply("Unsqueeze", self, axes(self, axis))

    def size(self, axis: int = 0) -> "Value":
        """int64 scalar: length of an axis."""
        shape = apply("Shape", self, start=axis, end=axis + 1, dtype="int64")
        return apply("Squeeze", shape, axes(self, 0))

    def indices(self) -> "Value":
        """int64 [n]: 0 to the length of the first axis."""
        zero, one = (constant(self, number, "int64") for number in (0, 1))
        return apply("Range", zero, self.size(), one)

    def is_before(self) -> "Value":
        """bool [n, n]: whether the column's element is before the row's."""
        place = self.indices()
        return place.unsqueeze(0) < place.unsqueeze(1)

    def filled(self, number: Number, dtype: str) -> "Value":
        """A vector as long as the first axis."""
        shape = self.size().unsqueeze(0)
        return apply("Expand", constant(self, number, dtype), shape)

    def put(self, index: "Value", update: "Value", *, reduction: str = "none") -> "Value":
        """This vector with ``update`` [n] at ``index`` [n]."""
        return apply("ScatterElements", self, index, update, axis=0, reduction=reduction)


def constant(beside: Value, number: object, dtype: str) -> Value:
    """In the body of ``beside``."""
    return Value(beside.body, beside.body.constant(number, dtype), dtype)


def as_value(beside: Value, value: Value | Number, dtype: str) -> Value:
    """A number as a constant of ``dtype``."""
    return value if isinstance(value, Value) else constant(beside, value, dtype)


def axes(beside: Value, axis: int) -> Value:
    """int64 [1]."""
    return constant(beside, [axis], "int64")


def apply(kind: str, *inputs: Value | Number, dtype: str | None = None, **attributes: object) -> Value:
    """A node of one output, by default of the first value's type."""
    given = next(value for value in inputs if isinstance(value, Value))
    values = [as_value(given, value, given.dtype) for value in inputs]
    body = max((value.body for value in values), key=lambda body: body.depth)
    return Value(body, body.op(kind, *(value.name for value in values), **attributes), dtype or given.dtype)


def where(condition: Value, yes: Value | Number, no: Value | Number) -> Value:
    """Elementwise; at least one of the two is a value, or both are float64 numbers."""
    known = next((value for value in (yes, no) if isinstance(value, Value)), None)
    dtype = known.dtype if known is not None else "float64"
    if dtype == "bool":
        one, other = (as_value(condition, value, "bool") for value in (yes, no))
        return (condition & one) | (~condition & other)
    return apply("Where", condition, *(as_value(condition, value, dtype) for value in (yes, no)), dtype=dtype)


def least(one: Value, other: Value | Number) -> Value:
    """Elementwise."""
    return apply("Min", one, other)


def greatest(one: Value, other: Value | Number) -> Value:
    """Elementwise."""
    return apply("Max", one, other)


def choose(cases: Sequence[tuple[Value, Value]], default: Value) -> Value:
    """The value of the first condition that holds."""
    result = default
    for condition, value in reversed(cases):
        result = where(condition, value, result)
    return result


def choose_fields(condition: Value, yes: Record, no: Record) -> Record:
    """Two records of values, field by field: ``yes`` where the condition holds."""
    chosen = {f.name: where(condition, getattr(yes, f.name), getattr(no, f.name)) for f in fields(yes)}
    return replace(yes, **chosen)


@dataclass(frozen=True, slots=True)
class LoopResult:
    """What a round of a loop leaves: whether to go on, the state, and values that are stacked over the rounds."""

    goes_on: Value
    state: Sequence[Value]
    stacked: Sequence[Value] = ()


def loop(
    label: str, most: Value, state: Sequence[Value], body: Callable[[Value, Sequence[Value]], LoopResult]
) -> list[Value]:
    """``body`` of (round, state) again and again, at most ``most`` times; the last state, then what was stacked."""
    outer = max((value.body for value in (most, *state)), key=lambda b: b.depth)
    inner = FunctionBuilder(f"{label}.", depth=outer.depth + 1)
    names = [f"{label}.round", f"{label}.goes", *(f"{label}.state{i}" for i in range(len(state)))]
    dtypes = ["int64", "bool", *(value.dtype for value in state)]
    given = [Value(inner, name, dtype) for name, dtype in zip(names, dtypes, strict=True)]
    result = body(given[0], given[2:])
    outputs = [_own(inner, value) for value in (result.goes_on, *result.state, *result.stacked)]
    declared = [*_declare(given[:2], shape=()), *_declare(given[2:])]
    graph = helper.make_graph(inner.nodes, label, declared, _declare(outputs))
    start = [most.name, outer.constant(True, "bool"), *(value.name for value in state)]
    made = outer.ops("Loop", *start, num_outputs=len(outputs) - 1, body=graph)
    return [Value(outer, name, value.dtype) for name, value in zip(made, outputs[1:], strict=True)]


def _own(body: FunctionBuilder, value: Value) -> Value:
    """Outputs of a body must be made in it, each by a name of its own."""
    return Value(body, body.op("Identity", value.name), value.dtype)


def _declare(values: Sequence[Value], shape: tuple[int, ...] | None = None) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(value.name, ELEMENT_TYPES[value.dtype], shape) for value in values]


def to_signed(word: int) -> int:
    """A number of 64 bits as int64 holds it."""
    return int(np.uint64(word).astype(np.int64))
