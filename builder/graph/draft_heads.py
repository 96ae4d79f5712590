"""What follows a draft's layer: candidates of each row, by standard operators or by our own, for the four heads."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from draftsmith.plugins.packing import pack_ranking

from ..spec.draft import HeadKind
from ..spec.ranking import Ranking
from .graph_builder import Dim, GraphBuilder
from .linear import STORAGE_DTYPES, Storage
from .native_linear import DRAFTSMITH
from .vocabulary_tables import FloatTable, NativeTable

NOISE_KEYS, INVERSE_TEMPERATURE, NUM_CANDIDATES = "noise_keys", "inverse_temperature", "num_candidates"
IDS, LOGITS, LOG_SUM_EXP = "candidate_ids", "candidate_logits", "log_sum_exp"


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftHead:
    """``ranking``: of the kinds "speculative" and "grouped". ``target_ids`` int32 [H]: the tokens of a subset's rows.
    ``has_own_rows``: the draft's own head has these rows alone; else they are gathered from a head of all tokens.
    ``num_outputs``: candidates that a native graph gives, the best ones.
    """

    kind: HeadKind
    ranking: Ranking | None = None
    target_ids: npt.NDArray[np.int32] | None = None
    has_own_rows: bool = False
    num_outputs: int = 16


def write_float_head(graph: GraphBuilder, head: DraftHead, table: FloatTable | None, x: str, storage: Storage) -> None:
    """Logits of all candidates of ``x`` float32 [B, N, d], and which they are unless they are the vocabulary.

    ``table``: None where the ranking's scores stand for logits.
    """
    with graph.scope("candidates"):
        if head.ranking is not None:
            scores, found, width = _rank(graph, head.ranking, x, storage)
            ids, logits = _look_up_candidates(graph, head.ranking, table, x, found)
            logits = logits or scores
        elif table is not None:
            logits, width = table.multiply(graph, x), table.num_rows
            ids = "" if head.target_ids is None else _repeat(graph, head.target_ids, logits)
        else:
            raise ValueError("a head without a ranking needs a table")
    shape: list[Dim] = ["B", "N", width]
    if ids:
        graph.output(ids, IDS, "int32", shape)
    graph.output(logits, LOGITS, "float32", shape)


def _repeat(graph: GraphBuilder, target_ids: npt.NDArray[np.int32], logits: str) -> str:
    """``target_ids`` [H] for each row of ``logits`` [B, N, H]."""
    stored = graph.weight("target_ids", target_ids, "int32")
    return graph.op("Expand", stored, graph.op("Shape", logits))


def _rank(graph: GraphBuilder, ranking: Ranking, x: str, storage: Storage) -> tuple[str, str, int]:
    """The best scores float32 [B, N, n], their rows int64 [B, N, n], and how many candidates they stand for."""
    down = graph.weight("ranking.down", ranking.down.T, "float32")  # [d, r]
    dtype = STORAGE_DTYPES[storage]
    rows = graph.weight("ranking.vocabulary", ranking.vocabulary.T, dtype)  # [r, V]
    if dtype != "float32":
        rows = graph.cast(rows, "float32")
    scores = graph.op("MatMul", graph.op("MatMul", x, down), rows)  # [B, N, V]
    if ranking.prior is not None:
        scores = graph.op("Add", scores, graph.weight("ranking.prior", ranking.prior, "float32"))
    size = 1 if ranking.groups is None else ranking.groups.shape[1]
    count = max(1, min(ranking.num_candidates // size, len(ranking.vocabulary)))
    best, found = graph.ops("TopK", scores, graph.constant([count], "int64"), outputs=(None, None), axis=-1)
    return best, found, count * size


def _look_up_candidates(
    graph: GraphBuilder, ranking: Ranking, table: FloatTable | None, x: str, found: str
) -> tuple[str, str]:
    """Ids int32 [B, N, k] of the best rows ``found`` and their logits float32 [B, N, k].

    A group that is not full gives -1 and -inf. ``table`` None: ids alone, the logits are "".
    """
    if table is None:
        return graph.cast(found, "int32"), ""
    if ranking.groups is None:
        ids = graph.cast(found, "int32")
        return ids, table.multiply_rows(graph, x, ids)
    groups = graph.weight("ranking.groups", ranking.groups, "int32")
    ids = graph.op("Gather", groups, found, axis=0)  # [B, N, n, S]
    ids = graph.op("Reshape", ids, graph.constant([0, 0, -1], "int64"))  # [B, N, k]
    zero = graph.constant(0, "int32")
    logits = table.multiply_rows(graph, x, graph.op("Max", ids, zero))
    missing = graph.op("Less", ids, zero)
    return ids, graph.op("Where", missing, graph.constant(-np.inf, "float32"), logits)


def declare_sampling(graph: GraphBuilder) -> None:
    """The inputs that a native head has besides."""
    graph.input(NOISE_KEYS, "int64", ["B", "N"])
    graph.input(INVERSE_TEMPERATURE, "float32", ["B", "N"])
    graph.input(NUM_CANDIDATES, "int32", ["B", "N"])


def write_native_head(graph: GraphBuilder, head: DraftHead, table: NativeTable | None, x: str) -> None:
    """The best candidates of ``x`` float32 [B, N, d] and the log-sum-exp of all; see ``declare_sampling``.

    ``table``: None where the ranking's scores stand for logits.
    """
    if head.ranking is None:
        if table is None:
            raise ValueError("a head without a ranking needs a table")
        with graph.scope("candidates"):
            ids = "" if head.target_ids is None else graph.weight("target_ids", head.target_ids, "int32")
            logits = table.multiply(graph, x)
        write_top_candidates(graph, logits, ids, head.num_outputs)
        return
    num_vocab = len(head.ranking.vocabulary) if table is None else table.num_rows
    with graph.scope("candidates"):
        outputs = graph.ops(
            "SpeculativeHead",
            x,
            *_store_ranking(graph, head.ranking, table),
            NOISE_KEYS,
            INVERSE_TEMPERATURE,
            NUM_CANDIDATES,
            domain=DRAFTSMITH,
            outputs=(IDS, LOGITS, LOG_SUM_EXP),
            num_outputs=head.num_outputs,
            num_candidates=head.ranking.num_candidates,
            num_vocab=num_vocab,
            is_exact=int(table is not None),
        )
    _declare_best(graph, outputs, head.num_outputs)


def _store_ranking(graph: GraphBuilder, ranking: Ranking, table: NativeTable | None) -> list[str]:
    """Inputs 1 to 7 of ``SpeculativeHead``."""
    packed = pack_ranking(ranking.vocabulary)
    down = graph.weight("ranking.down", ranking.down, "float32")
    codes = graph.weight("ranking.weight", packed.weights)
    scales = graph.weight("ranking.scales", packed.scales)
    rows = ["", ""] if table is None else [f"{table.name}.weight", f"{table.name}.scales"]
    prior = "" if ranking.prior is None else graph.weight("ranking.prior", ranking.prior, "float32")
    groups = "" if ranking.groups is None else graph.weight("ranking.groups", ranking.groups, "int32")
    return [down, codes, scales, *rows, prior, groups]


def write_top_candidates(graph: GraphBuilder, logits: str, ids: str, num_outputs: int) -> None:
    """The best of ``logits`` float32 [B, N, V], with our own operator; ``ids`` int32 [V]: their tokens, "" for all."""
    outputs = graph.ops(
        "TopCandidates",
        logits,
        ids,
        NOISE_KEYS,
        INVERSE_TEMPERATURE,
        domain=DRAFTSMITH,
        outputs=(IDS, LOGITS, LOG_SUM_EXP),
        num_outputs=num_outputs,
    )
    _declare_best(graph, outputs, num_outputs)


def _declare_best(graph: GraphBuilder, outputs: list[str], num_outputs: int) -> None:
    ids, logits, log_sum_exp = outputs
    graph.output(ids, IDS, "int32", ["B", "N", num_outputs])
    graph.output(logits, LOGITS, "float32", ["B", "N", num_outputs])
    graph.output(log_sum_exp, LOG_SUM_EXP, "float32", ["B", "N"])
