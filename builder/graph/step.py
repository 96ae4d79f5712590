"""The inputs of a target step and what every layer shares: visibility of keys, computed once a step from positions."""

from dataclasses import dataclass
from typing import Literal

from .graph_builder import GraphBuilder

Columns = Literal["valid", "capacity"]
"""Cache columns that attention reads: those up to the longest row's last token, or all that are bound (S)."""
HIDDEN_BIAS = {"float32": -1.0e30, "float16": -30000.0}
"""Added to the score of a key that is not visible: exp() of it is exactly 0, and no sum with it is infinite or NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNames:
    """Names of the graph's inputs (design 4)."""

    token_ids: str = "token_ids"  # noqa: S105 (a name) int32 [B, T]
    positions: str = "positions"  # int32 [B, T]
    past_lengths: str = "past_lengths"  # int32 [B]
    query_lengths: str = "query_lengths"  # int32 [B]
    tree_mask: str = "tree_mask"  # bool [B, T, T]
    logits_index: str = "logits_index"  # int32 [B, N]


STEP = StepNames()


def declare_inputs(graph: GraphBuilder) -> None:
    """Declare the step's inputs except for the cache."""
    graph.input(STEP.token_ids, "int32", ["B", "T"])
    graph.input(STEP.positions, "int32", ["B", "T"])
    graph.input(STEP.past_lengths, "int32", ["B"])
    graph.input(STEP.query_lengths, "int32", ["B"])
    graph.input(STEP.tree_mask, "bool", ["B", "T", "T"])
    graph.input(STEP.logits_index, "int32", ["B", "N"])


class Visibility:
    """Which of the first L cache columns each token of the block may see; L covers the longest row of the batch.

    Column j of row b is the cached token j where j < past_lengths[b], else token j - past_lengths[b] of the block.
    """

    def __init__(self, graph: GraphBuilder, columns: Columns) -> None:
        self._graph = graph
        with graph.scope("visibility"):
            self.num_columns = self._count_columns() if columns == "valid" else self._count_capacity()  # int64 []
            self._columns()

    def bias(self, window: int | None) -> str:
        """0 or a huge negative number, [B, 1, T, L] in the compute type; ``window``: keys at distance < window only."""
        graph = self._graph
        with graph.scope("visibility" if window is None else f"visibility_{window}"):
            seen = self._seen if window is None else graph.op("And", self._seen, self._near(window))
            kind = graph.compute
            bias = graph.op("Where", seen, graph.constant(0, kind), graph.constant(HIDDEN_BIAS[kind], kind))
            return graph.op("Unsqueeze", bias, graph.constant([1], "int64"))

    def _count_columns(self) -> str:
        graph = self._graph
        longest = graph.op("ReduceMax", STEP.past_lengths, keepdims=0)
        tokens = graph.op("Shape", STEP.token_ids, start=1, end=2)
        tokens = graph.op("Squeeze", tokens, graph.constant([0], "int64"))
        return graph.op("Add", graph.cast(longest, "int64"), tokens)

    def _count_capacity(self) -> str:
        graph = self._graph
        size = graph.op("Shape", "past_key_0", start=2, end=3)
        return graph.op("Squeeze", size, graph.constant([0], "int64"))

    def _columns(self) -> None:
        graph = self._graph
        one, zero = graph.constant(1, "int64"), graph.constant(0, "int64")
        columns = graph.op("Range", zero, self.num_columns, one)  # [L]
        past = graph.cast(STEP.past_lengths, "int64")
        past = graph.op("Unsqueeze", past, graph.constant([1], "int64"))  # [B, 1]
        offset = graph.op("Sub", columns, past)  # [B, L], index in the block
        self._cached = graph.op("Less", offset, zero)  # [B, L]
        last = graph.op("Shape", STEP.token_ids, start=1, end=2)
        last = graph.op("Sub", last, one)
        self._index = graph.op("Min", graph.op("Max", offset, zero), last)  # [B, L]
        inside = graph.op("LessOrEqual", offset, last)
        self._columns_row = columns
        tree = self._gather_block(inside)  # [B, T, L]
        cached = graph.op("Unsqueeze", self._cached, graph.constant([1], "int64"))  # [B, 1, L]
        self._seen = graph.op("Or", cached, tree)  # [B, T, L]

    def _gather_block(self, inside: str) -> str:
        graph = self._graph
        axis = graph.constant([1], "int64")
        rows = graph.op("Unsqueeze", self._index, axis)  # [B, 1, L]
        shape = graph.op(
            "Concat",
            graph.op("Shape", STEP.token_ids),
            graph.op("Reshape", self.num_columns, axis),
            axis=0,
        )
        rows = graph.op("Expand", rows, shape)  # [B, T, L]
        # Bits as numbers: TensorRT gathers no booleans.
        tree = graph.op("GatherElements", graph.cast(STEP.tree_mask, "int32"), rows, axis=2)
        return graph.op("And", graph.cast(tree, "bool"), graph.op("Unsqueeze", inside, axis))

    def _near(self, window: int) -> str:
        """Keys at distance < window by position: a cached token's position is its column, a block token's is given."""
        graph = self._graph
        positions = graph.cast(STEP.positions, "int64")  # [B, T]
        block = graph.op("GatherElements", positions, self._index, axis=1)  # [B, L]
        keys = graph.op("Where", self._cached, self._columns_row, block)
        keys = graph.op("Unsqueeze", keys, graph.constant([1], "int64"))  # [B, 1, L]
        queries = graph.op("Unsqueeze", positions, graph.constant([2], "int64"))  # [B, T, 1]
        return graph.op("Less", graph.op("Sub", queries, keys), graph.constant(window, "int64"))
