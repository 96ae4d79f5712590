"""Writes the two step graphs of an EAGLE-3 draft over one weights file; knows the order of parts only.

``draft_first.onnx`` fuses the target's features, ``draft_next.onnx`` takes the hidden state that a step before gave;
all behind that is the same. See docs/architecture.md for inputs and outputs.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import onnx

from ..progress import Progress
from ..spec.draft import DraftSpec
from .borrowed import StoredTensors
from .cut import cut_before
from .dialects import DIALECTS
from .draft_heads import DraftHead, declare_sampling, write_float_head, write_native_head
from .draft_layer import as_layer_spec, read_as_layer
from .draft_tables import DraftTables, ReadsTensors
from .graph_builder import Dim, GraphBuilder
from .layers import LayerWriter
from .linear import FloatLinear, LinearPlan, Storage
from .native_linear import NativeLinear
from .step import STEP, declare_inputs
from .target_graph import Target
from .vocabulary_tables import FloatTable, NativeTable
from .weights_file import WeightsFile

FIRST_NAME, NEXT_NAME, WEIGHTS_NAME = "draft_first.onnx", "draft_next.onnx", "draft.weights"
FEATURES, HIDDEN, HIDDEN_OUT = "features", "hidden", "hidden_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftGraphOptions:
    """How a draft's graphs are written.

    ``capacity``: rows of the rope tables, see ``GraphOptions``. ``storage``: of float weights; borrowed ones must have
    it too. ``stored``: what the target's graph in the same folder stored, None to store copies of what is borrowed.
    """

    dialect: Literal["onnxruntime", "native", "standard"]
    storage: Storage
    capacity: int
    head: DraftHead
    stored: StoredTensors | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftFiles:
    """What was written; ``first`` is None for a draft without features. ``num_bytes`` of all together."""

    first: Path | None
    next: Path
    weights: Path
    num_bytes: int


def write_draft_graphs(
    spec: DraftSpec,
    weights: ReadsTensors,
    target: Target,
    options: DraftGraphOptions,
    folder: Path,
    *,
    progress: Progress,
) -> DraftFiles:
    """Write both graphs and ``draft.weights`` into ``folder``; ``weights``: the draft's tensors by our names.

    Holds one joined linear in memory at a time. ``target`` is read for what the draft has not of its own and
    ``options.stored`` does not give.
    """
    first, later, weights_path = (folder / name for name in (FIRST_NAME, NEXT_NAME, WEIGHTS_NAME))
    with WeightsFile(weights_path) as file, progress.stage("write draft graph"):
        graph = GraphBuilder(file, opset=DIALECTS[options.dialect].opset)
        _DraftWriter(spec, weights, target, options, graph).write()
        model = graph.build("draft")
        onnx.save_model(model, first)
        onnx.save_model(cut_before(model, HIDDEN, "float32", ["B", "T", spec.hidden_size], FEATURES), later)
    num_bytes = sum(path.stat().st_size for path in (first, later, weights_path))
    return DraftFiles(first=first, next=later, weights=weights_path, num_bytes=num_bytes)


class _DraftWriter:
    """The parts of a draft in order: fusing of features, layer, head."""

    def __init__(
        self, spec: DraftSpec, weights: ReadsTensors, target: Target, options: DraftGraphOptions, graph: GraphBuilder
    ) -> None:
        self._spec = spec
        self._options = options
        self._graph = graph
        layer_spec = as_layer_spec(spec)
        self._dialect = DIALECTS[options.dialect](graph, layer_spec, "valid")
        self._is_native = options.dialect == "native"
        self._read = weights.read
        read = read_as_layer(weights.read)
        self._layers = LayerWriter(graph, layer_spec, self._dialect, read, self._plan_for, norm_factors={})
        self._tables = DraftTables(
            graph=graph,
            spec=spec,
            own=weights,
            target_spec=target.spec,
            target=target.weights,
            stored=options.stored,
            is_native=self._is_native,
            storage=options.storage,
        )

    def write(self) -> None:
        spec, graph = self._spec, self._graph
        declare_inputs(graph)
        graph.input(FEATURES, "float32", ["B", "T", spec.feature_size])
        if self._is_native:
            declare_sampling(graph)
        shape: list[Dim] = ["B", spec.num_kv_heads, "S", spec.head_dim]
        for kind in ("key", "value"):
            graph.input(f"past_{kind}_0", graph.compute, shape)
        self._layers.write_tables(self._options.capacity)
        self._dialect.begin(self._layers.windows())
        self._write_head(self._write_layer(self._fuse()))
        for kind in ("key", "value"):
            graph.output(f"present_{kind}_0", f"present_{kind}_0", graph.compute, shape)

    def _fuse(self) -> str:
        """The features [B, T, 3 d_target] as the hidden state [B, T, d] of a first step."""
        spec, graph = self._spec, self._graph
        with graph.scope("fuse"):
            x = FEATURES
            if spec.norm_before_fc:
                x = self._norm(x, "fc_input_norm")
            elif spec.fc_norm:
                count = len(spec.feature_layers)
                sizes = graph.constant([spec.target_hidden_size] * count, "int64")
                parts = graph.ops("Split", x, sizes, outputs=(None,) * count, axis=-1)
                normed = [self._norm(part, f"fc_norm.{index}") for index, part in enumerate(parts)]
                x = graph.op("Concat", *normed, axis=-1)
            bias = self._read("fc.bias") if spec.fc_bias else None
            x = self._plan_for("fc").emit(graph, x, self._read("fc.weight").T, bias, "fc")
            return graph.op("Identity", x, output=HIDDEN)

    def _write_layer(self, hidden: str) -> str:
        """What the layer makes of ``hidden`` and the tokens' embeddings, [B, T, d]."""
        spec, graph = self._spec, self._graph
        with graph.scope("input"):
            embedded = self._tables.embedding().look_up(graph, STEP.token_ids)
            if spec.embed_scale != 1.0:
                embedded = graph.op("Mul", embedded, graph.constant(spec.embed_scale, "float32"))
            normed = self._norm(hidden, "hidden_norm")
            both = graph.op("Concat", self._norm(embedded, "embedding_norm"), normed, axis=-1)  # [B, T, 2 d]
        x, delta = self._layers.write_layer(0, normed if spec.norm_before_residual else hidden, both)
        return graph.op("Add", x, delta)

    def _write_head(self, x: str) -> None:
        """What is fed back, and candidates, of the tokens in ``logits_index`` alone."""
        spec, graph, options = self._spec, self._graph, self._options
        with graph.scope("head"):
            index = graph.op("Unsqueeze", STEP.logits_index, graph.constant([2], "int64"))
            x = graph.op("GatherND", x, graph.cast(index, "int64"), batch_dims=1)  # [B, N, d]
            normed = self._norm(x, "norm") if spec.feeds_back_normed or spec.norms_head_input else x
        graph.output(normed if spec.feeds_back_normed else x, HIDDEN_OUT, "float32", ["B", "N", spec.hidden_size])
        table = self._tables.head(options.head)
        head_input = normed if spec.norms_head_input else x
        if not isinstance(table, NativeTable) and not self._is_native:
            write_float_head(graph, options.head, table, head_input, options.storage)
        elif not isinstance(table, FloatTable):
            write_native_head(graph, options.head, table, head_input)

    def _norm(self, x: str, name: str) -> str:
        return self._dialect.norm(x, self._layers.norm_weight(f"{name}.weight", name))

    def _plan_for(self, name: str) -> LinearPlan:
        """8-bit weights are rounded to the nearest: a draft's errors cost speed alone."""
        del name
        return NativeLinear() if self._is_native else FloatLinear(self._options.storage)
