"""Writes the step graph of a target model, or of one that drafts, from its checkpoint, streaming the weights.

Knows the order of parts only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import onnx

from ..progress import Progress, Stage
from ..spec.target import ModelSpec
from .dialects import DIALECTS, DialectName
from .draft_heads import LOGITS, declare_sampling, write_top_candidates
from .graph_builder import Dim, GraphBuilder
from .layers import LayerWriter
from .linear import DIVISORS, EmbeddingPlan, FloatEmbedding, FloatLinear, LinearPlan, Storage, emit_tied_head
from .step import STEP, Columns, declare_inputs
from .weights_file import WeightsFile

GRAPH_NAME = "target.onnx"
WEIGHTS_NAME = "target.weights"
CAPACITY_STEP = 64


class ReadsTensors(Protocol):
    """The part of ``WeightSource`` that graphs need."""

    def read(self, name: str) -> npt.NDArray[np.float32]: ...


class Target(Protocol):
    """The part of ``Checkpoint`` that graphs need."""

    @property
    def spec(self) -> ModelSpec: ...
    @property
    def weights(self) -> ReadsTensors: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateOutput:
    """For a language model that drafts: candidates instead of logits, as EAGLE-3 drafts give them (``draft_graph``).

    ``num_vocab``: only tokens below are candidates. ``num_outputs``: how many the native dialect gives, the best ones.
    """

    num_vocab: int
    num_outputs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOptions:
    """How a target graph is written.

    ``storage``: how float weights are stored; ``compute``: the type of linears, attention and cache (the residual
    stream and norms are always float32). ``capacity``: rows of the rope tables, the most tokens a cache row can hold,
    padding included (see ``cache_capacity``). ``feature_layers``: layers whose *inputs* are given as features.
    ``columns``: "valid" reads the cache up to its longest row; "capacity" reads all that is bound, for runtimes that
    take no sizes from values (TensorRT). ``linears``, ``embedding``: plans by joined name; float weights where there is
    none. ``norm_factors`` [d] by norm ("layers.0.input_norm", "final_norm"): what the plan behind that norm has taken
    over; the norm's weight is divided by it. ``candidates``: None gives ``logits``. ``graph_name`` and
    ``weights_name``: the files.
    """

    dialect: DialectName
    storage: Storage
    capacity: int
    compute: Literal["fp32", "fp16"] = "fp32"
    columns: Columns = "valid"
    feature_layers: tuple[int, ...] = ()
    linears: Mapping[str, LinearPlan] = field(default_factory=dict)
    embedding: EmbeddingPlan | None = None
    norm_factors: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    candidates: CandidateOutput | None = None
    graph_name: str = GRAPH_NAME
    weights_name: str = WEIGHTS_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFiles:
    """What was written; ``num_bytes`` of both together."""

    graph: Path
    weights: Path
    num_bytes: int


def cache_capacity(max_length: int, max_query_len: int) -> int:
    """Tokens a cache row needs: ``max_length`` and a whole padded block behind it."""
    return -(-(max_length + max_query_len) // CAPACITY_STEP) * CAPACITY_STEP


def write_target_graph(checkpoint: Target, options: GraphOptions, folder: Path, *, progress: Progress) -> GraphFiles:
    """Write ``target.onnx`` and ``target.weights`` into ``folder``; holds one joined linear in memory at a time."""
    graph_path, weights_path = folder / options.graph_name, folder / options.weights_name
    spec = checkpoint.spec
    with (
        WeightsFile(weights_path) as weights,
        progress.stage("write graph", total=spec.num_layers + 2, unit="layers") as stage,
    ):
        compute = "float32" if options.compute == "fp32" else "float16"
        graph = GraphBuilder(weights, opset=DIALECTS[options.dialect].opset, compute=compute)
        _TargetWriter(checkpoint, options, graph, stage).write()
        onnx.save_model(graph.build("target"), graph_path)
    return GraphFiles(
        graph=graph_path, weights=weights_path, num_bytes=graph_path.stat().st_size + weights_path.stat().st_size
    )


class _TargetWriter:
    """The parts of a target in order: embedding, layers, head."""

    def __init__(self, checkpoint: Target, options: GraphOptions, graph: GraphBuilder, stage: Stage) -> None:
        self._spec = checkpoint.spec
        self._read = checkpoint.weights.read
        self._options = options
        self._graph = graph
        self._stage = stage
        self._dialect = DIALECTS[options.dialect](graph, self._spec, options.columns)
        self._layers = LayerWriter(
            graph, self._spec, self._dialect, self._read, self._plan_for, norm_factors=options.norm_factors
        )
        self._features: dict[int, str] = {}

    def write(self) -> None:
        declare_inputs(self._graph, self._options.columns)
        if self._gives_best:
            declare_sampling(self._graph)
        self._declare_cache()
        self._layers.write_tables(self._options.capacity)
        self._dialect.begin(self._layers.windows())
        x = self._embed()
        self._stage.advance()
        self._write_head(self._write_layers(x))
        self._write_features()
        self._declare_present()
        self._stage.advance()

    def _declare_cache(self) -> None:
        spec = self._spec
        shape: list[Dim] = ["B", spec.num_kv_heads, self._cache_dim(), spec.head_dim]
        for index in range(spec.num_layers):
            for kind in ("key", "value"):
                self._graph.input(f"past_{kind}_{index}", self._graph.compute, shape)

    def _embed(self) -> str:
        graph = self._graph
        plan = self._options.embedding or FloatEmbedding(self._options.storage)
        x = plan.emit(graph, STEP.token_ids, self._read("model.embed_tokens.weight"), "embedding")
        if self._spec.embed_scale != 1.0:
            x = graph.op("Mul", x, graph.constant(self._spec.embed_scale, "float32"))
        return x  # [B, T, d]

    def _write_layers(self, x: str) -> str:
        """The last residual [B, T, d]."""
        layers, dialect, delta = self._layers, self._dialect, ""
        for index in range(self._spec.num_layers):
            name = f"layers.{index}.input_norm"
            weight = layers.norm_weight(f"model.layers.{index}.input_layernorm.weight", name)
            with self._graph.scope(f"layers.{index}"):
                normed, x = dialect.add_norm(x, delta, weight) if delta else (dialect.norm(x, weight), x)
            if index in self._options.feature_layers:
                self._features[index] = x
            x, delta = layers.write_layer(index, x, normed)
            self._stage.advance()
        return self._graph.op("Add", x, delta)

    def _write_head(self, x: str) -> None:
        """Norm and head of the tokens in ``logits_index`` alone."""
        graph = self._graph
        with graph.scope("head"):
            index = graph.op("Unsqueeze", STEP.logits_index, graph.constant([2], "int64"))
            x = graph.op("GatherND", x, graph.cast(index, "int64"), batch_dims=1)  # [B, N, d]
            x = self._dialect.norm(x, self._layers.norm_weight("model.norm.weight", "final_norm"))
            if graph.compute != "float32":
                x = graph.cast(x, graph.compute)
            logits = self._multiply_head(x)
            if graph.compute != "float32":
                logits = graph.cast(logits, "float32")
        self._declare_logits(logits)

    @property
    def _gives_best(self) -> bool:
        return self._options.candidates is not None and self._options.dialect == "native"

    def _declare_logits(self, logits: str) -> None:
        """``logits`` float32 [B, N, V], or the candidates that they make."""
        graph, vocab_size, wanted = self._graph, self._spec.vocab_size, self._options.candidates
        if wanted is None:
            graph.output(logits, "logits", "float32", ["B", "N", vocab_size])
            return
        width = min(wanted.num_vocab, vocab_size)
        if width < vocab_size:
            start, end, axis = (graph.constant([value], "int64") for value in (0, width, 2))
            logits = graph.op("Slice", logits, start, end, axis)
        if self._gives_best:
            write_top_candidates(graph, logits, "", wanted.num_outputs)
        else:
            graph.output(logits, LOGITS, "float32", ["B", "N", width])

    def _write_features(self) -> None:
        if not self._options.feature_layers:
            return
        parts = [self._features[i] for i in self._options.feature_layers]
        joined = self._graph.op("Concat", *parts, axis=-1)
        self._graph.output(joined, "features", "float32", ["B", "T", len(parts) * self._spec.hidden_size])

    def _cache_dim(self) -> Dim:
        """S, or its number where every column is read: TensorRT's cache update takes no other."""
        return self._options.capacity if self._options.columns == "capacity" else "S"

    def _declare_present(self) -> None:
        spec = self._spec
        shape: list[Dim] = ["B", spec.num_kv_heads, self._cache_dim(), spec.head_dim]
        for index in range(spec.num_layers):
            for kind in ("key", "value"):
                name = f"present_{kind}_{index}"
                self._graph.output(name, name, self._graph.compute, shape)

    def _multiply_head(self, x: str) -> str:
        """[B, N, d] -> [B, N, V] in the compute type."""
        spec, options = self._spec, self._options
        if spec.tied_head and options.embedding is None and "head" not in options.linears:
            return emit_tied_head(self._graph, x, options.storage, spec.hidden_size)
        factors = options.norm_factors.get("final_norm")
        if factors is not None and not spec.tied_head:
            # Read by drafts alone, which multiply with the same codes behind a norm of their own.
            self._graph.weight(f"head.{DIVISORS}", factors, "float32")
        tensor = "model.embed_tokens.weight" if spec.tied_head else "lm_head.weight"
        return self._plan_for("head").emit(self._graph, x, self._read(tensor).T, None, "head")

    def _plan_for(self, name: str) -> LinearPlan:
        planned = self._options.linears.get(name)
        return FloatLinear(self._options.storage) if planned is None else planned
