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
    tree_mask: str = "tree_mask"  # bool [B, T, U]
    logits_index: str = "logits_index"  # int32 [B, N]


STEP = StepNames()


def declare_inputs(graph: GraphBuilder, columns: Columns = "valid") -> None:
    """Declare the step's inputs except for the cache.

    ``tree_mask`` says which of the last U columns each token sees: U - T tokens that an earlier step has cached, then
    the block's (see ``Visibility``). Runtimes that read all that is bound ("capacity") take U = T only.
    """
    graph.input(STEP.token_ids, "int32", ["B", "T"])
    graph.input(STEP.positions, "int32", ["B", "T"])
    graph.input(STEP.past_lengths, "int32", ["B"])
    graph.input(STEP.query_lengths, "int32", ["B"])
    graph.input(STEP.tree_mask, "bool", ["B", "T", "U" if columns == "valid" else "T"])
    graph.input(STEP.logits_index, "int32", ["B", "N"])


class Visibility:
    """Which of the first L cache columns each token of the block may see; L covers the longest row of the batch.

    Column past_lengths[b] - (U - T) + j of row b is column j of ``tree_mask``; those before it are seen. What a row of
    the mask leaves out does not count as distance: behind the mask's start a key is as far as if its token's path alone
    were there.
    """

    def __init__(self, graph: GraphBuilder, columns: Columns) -> None:
        self._graph = graph
        self._has_levels = columns == "valid"
        with graph.scope("visibility"):
            self.num_columns = self._count_columns() if columns == "valid" else self._count_capacity()  # int64 []
            self._columns()

    def biases(self, windows: set[int | None]) -> dict[int | None, str]:
        """``bias`` of each window."""
        return {window: self.bias(window) for window in sorted(windows, key=lambda w: w or 0)}

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
        tokens = graph.op("Squeeze", self._num_tokens(), graph.constant([0], "int64"))
        return graph.op("Add", graph.cast(longest, "int64"), tokens)

    def _count_capacity(self) -> str:
        graph = self._graph
        size = graph.op("Shape", "past_key_0", start=2, end=3)
        return graph.op("Squeeze", size, graph.constant([0], "int64"))

    def _num_tokens(self) -> str:
        return self._graph.op("Shape", STEP.token_ids, start=1, end=2)  # T, int64 [1]

    def _num_masked(self) -> str:
        if not self._has_levels:
            return self._num_tokens()
        return self._graph.op("Shape", STEP.tree_mask, start=2, end=3)  # U, int64 [1]

    def _find_start(self) -> str:
        """The column of each row that the mask begins with, [B, 1]; negative where a row has cached too little."""
        graph = self._graph
        past = graph.cast(STEP.past_lengths, "int64")
        past = graph.op("Unsqueeze", past, graph.constant([1], "int64"))
        if not self._has_levels:
            return past
        return graph.op("Sub", past, graph.op("Sub", self._num_masked(), self._num_tokens()))

    def _columns(self) -> None:
        graph = self._graph
        one, zero = graph.constant(1, "int64"), graph.constant(0, "int64")
        columns = graph.op("Range", zero, self.num_columns, one)  # [L]
        self._start = self._find_start()
        offset = graph.op("Sub", columns, self._start)  # [B, L], index in the mask
        self._before = graph.op("Less", offset, zero)  # [B, L]
        last = graph.op("Sub", self._num_masked(), one)
        self._index = graph.op("Min", graph.op("Max", offset, zero), last)  # [B, L]
        inside = graph.op("LessOrEqual", offset, last)
        self._columns_row = columns
        # Bits as numbers: TensorRT gathers no booleans.
        tree = graph.cast(self._gather(graph.cast(STEP.tree_mask, "int32")), "bool")
        tree = graph.op("And", tree, graph.op("Unsqueeze", inside, graph.constant([1], "int64")))
        before = graph.op("Unsqueeze", self._before, graph.constant([1], "int64"))  # [B, 1, L]
        self._seen = graph.op("Or", before, tree)  # [B, T, L]

    def _gather(self, masked: str) -> str:
        """What [B, T, U] says of the mask's columns, for all columns: [B, T, L]."""
        graph = self._graph
        axis = graph.constant([1], "int64")
        rows = graph.op("Unsqueeze", self._index, axis)  # [B, 1, L]
        shape = graph.op(
            "Concat",
            graph.op("Shape", STEP.token_ids),
            graph.op("Reshape", self.num_columns, axis),
            axis=0,
        )
        return graph.op("GatherElements", masked, graph.op("Expand", rows, shape), axis=2)

    def _near(self, window: int) -> str:
        """Keys at distance < window, [B, T, L]; the position of a token before the mask is its column."""
        graph = self._graph
        positions = graph.cast(STEP.positions, "int64")  # [B, T]
        if self._has_levels:
            before = graph.op("Unsqueeze", self._before, graph.constant([1], "int64"))  # [B, 1, L]
            keys = graph.op("Where", before, self._columns_row, self._path_positions())  # [B, T, L]
        else:
            block = graph.op("GatherElements", positions, self._index, axis=1)  # [B, L]
            keys = graph.op("Where", self._before, self._columns_row, block)
            keys = graph.op("Unsqueeze", keys, graph.constant([1], "int64"))  # [B, 1, L]
        queries = graph.op("Unsqueeze", positions, graph.constant([2], "int64"))  # [B, T, 1]
        return graph.op("Less", graph.op("Sub", queries, keys), graph.constant(window, "int64"))

    def _path_positions(self) -> str:
        """Where a token sees a column of the mask: its place in the token's path behind the start, [B, T, L]."""
        graph = self._graph
        one, zero = graph.constant(1, "int64"), graph.constant(0, "int64")
        count = graph.op("Squeeze", self._num_masked(), graph.constant([0], "int64"))
        index = graph.op("Range", zero, count, one)  # [U]
        upper = graph.op("LessOrEqual", graph.op("Unsqueeze", index, graph.constant([1], "int64")), index)  # [U, U]
        # Running counts as a product, exact in float32: parsers of small operator sets know no CumSum.
        mask = graph.cast(STEP.tree_mask, "float32")
        places = graph.op("MatMul", mask, graph.cast(upper, "float32"))  # [B, T, U], from 1
        places = graph.op("Sub", graph.cast(self._gather(places), "int64"), one)  # [B, T, L]
        start = graph.op("Max", self._start, zero)
        return graph.op("Add", graph.op("Unsqueeze", start, graph.constant([2], "int64")), places)
