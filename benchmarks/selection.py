"""Ways to choose a speculative vocabulary's candidates: how long each takes and what it finds, on real scores.

The ranking is the closed form (``builder/vocabulary/closed_form.py``) fitted on the shipped calibration text; hidden
states to be ranked are those of the evaluation text.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.progress import Silent
from draftsmith.builder.quantize.text import encode_documents, read_shipped
from draftsmith.builder.vocabulary.closed_form import fit_ranking, second_moment
from draftsmith.builder.vocabulary.hidden_states import read_head, run_target
from draftsmith.builder.vocabulary.passages import Passage
from draftsmith.plugins.candidate_reference import HeadTables, project, ranking_scores
from draftsmith.plugins.cpu_library import build_library, find_compiler
from draftsmith.plugins.packing import pack_ranking, pack_vocabulary
from onnx import helper, numpy_helper
from report import interleave, paired_ratio, print_header, print_table
from setting import find_checkpoint, make_parser

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float32]
GROUP_SIZE = 16
FLOAT, INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """``scores`` [M, V] of the ranking and ``logits`` [M, V] of the full head."""

    scores: FloatArray
    logits: FloatArray
    tables: HeadTables
    hidden: FloatArray


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__, rounds=15)
    parser.add_argument("--rank", type=int, default=36, help="rank of the ranking")
    parser.add_argument("--candidates", type=int, default=2048, help="k")
    parser.add_argument("--tokens", type=int, default=4000, help="hidden states that the ranking is fitted on")
    parser.add_argument("--states", type=int, default=64, help="hidden states that are ranked")
    options = parser.parse_args()
    found = collect_scores(find_checkpoint(options.checkpoint), options)
    print_header(f"Choosing {options.candidates:,} of {found.scores.shape[1]:,} tokens, {options.threads} threads")
    choosers = make_choosers(found, options.candidates, options.threads)
    figures = interleave(
        {name: partial(time_us, choose, found) for name, choose in choosers.items()}, rounds=options.rounds
    )
    base = figures["threshold (ours, with ranking)"]
    rows = []
    for name, choose in choosers.items():
        recall = measure(choose, found, options.candidates)
        times = [f"{statistics.median(figures[name]):.0f}", f"{min(figures[name]):.0f}"]
        rows.append([name, *times, f"{paired_ratio(figures[name], base):.2f}", *recall])
    print_table(["chooser", "us", "least", "ratio", "of the true k", "top-1", "mass"], rows)


def collect_scores(path: Path, options: argparse.Namespace) -> Scores:
    """A ranking fitted on calibration text, and its scores on other text."""
    with open_checkpoint(path) as checkpoint:
        head = read_head(checkpoint, None)
        texts = [
            encode_documents(read_shipped(name), checkpoint.tokenizer, options.tokens)
            for name in ("calibration", "held_out")
        ]
        fitted, ranked = (
            np.concatenate(
                [
                    one.hidden
                    for one in run_target(
                        checkpoint, [Passage(task="text", token_ids=ids) for ids in text], (), Silent()
                    )
                ]
            )
            for text in texts
        )
    down, vocabulary = fit_ranking(head, second_moment(fitted), options.rank)
    hidden = np.ascontiguousarray(ranked[:: max(1, len(ranked) // options.states)][: options.states])
    tables = HeadTables(down=down, ranking=pack_ranking(vocabulary), head=pack_vocabulary(head))
    scores = np.stack([ranking_scores(project(down, row), tables) for row in hidden])
    return Scores(scores=scores, logits=hidden @ head.T, tables=tables, hidden=hidden)


Chooser = Callable[[int], Array]
"""Ids [k] for the hidden state of an index."""


def make_choosers(found: Scores, count: int, num_threads: int) -> dict[str, Chooser]:
    """By name. All but ours choose among scores that are there; ours ranks first."""
    scores = found.scores
    return {
        "threshold (ours, with ranking)": run_ours(found, count, num_threads),
        "ONNX TopK": run_top_k(scores, count, num_threads),
        "np.argpartition": lambda index: np.argpartition(scores[index], -count)[-count:],
        "bucket maxima": lambda index: bucket_maxima(scores[index], count),
        f"grouped by {GROUP_SIZE}": lambda index: best_groups(scores[index], count),
    }


def bucket_maxima(scores: FloatArray, count: int) -> Array:
    """The best of each of ``count`` buckets (token id modulo ``count``): no selection at all, approximate."""
    padded = np.full(-(-len(scores) // count) * count, -np.inf, np.float32)
    padded[: len(scores)] = scores
    return padded.reshape(-1, count).argmax(axis=0) * count + np.arange(count)


def best_groups(scores: FloatArray, count: int) -> Array:
    """All tokens of the groups of neighbouring ids whose largest score is best."""
    padded = np.full(-(-len(scores) // GROUP_SIZE) * GROUP_SIZE, -np.inf, np.float32)
    padded[: len(scores)] = scores
    best = padded.reshape(-1, GROUP_SIZE).max(axis=1)
    chosen = np.argpartition(best, -(count // GROUP_SIZE))[-(count // GROUP_SIZE) :]
    ids = (chosen[:, None] * GROUP_SIZE + np.arange(GROUP_SIZE)).reshape(-1)
    return ids[ids < len(scores)]


def run_top_k(scores: FloatArray, count: int, num_threads: int) -> Chooser:
    """ONNX Runtime's own operator."""
    node = helper.make_node("TopK", ["x", "k"], ["values", "ids"], sorted=0)
    constants = {"k": np.array([count])}
    session = open_session(
        [node], {"x": (FLOAT, scores[:1].shape)}, {"ids": onnx.TensorProto.INT64}, constants, with_threads(num_threads)
    )
    return lambda index: np.asarray(session.run(None, {"x": scores[index : index + 1]})[0])[0]


def run_ours(found: Scores, count: int, num_threads: int) -> Chooser:
    """``SpeculativeHead`` without exact logits: ranking and choice.

    The operator gives the best alone, so the set is the reference's, which tests hold it to.
    """
    compiler = find_compiler()
    if compiler is None:
        raise SystemExit("benchmarks: needs x86-64 Linux and a C compiler. Run `pip install ziglang`")
    tables = found.tables
    constants = {"down": tables.down, "codes": tables.ranking.weights, "scales": tables.ranking.scales}
    constants |= {"key": np.zeros((1, 1), np.int64), "t": np.ones((1, 1), np.float32), "n": np.zeros((1, 1), np.int32)}
    inputs = ["h", "down", "codes", "scales", "", "", "", "", "key", "t", "n"]
    attributes = {"num_outputs": 16, "num_candidates": count, "num_vocab": found.scores.shape[1], "is_exact": 0}
    node = helper.make_node("SpeculativeHead", inputs, ["ids", "logits", "sum"], domain="draftsmith", **attributes)
    shape = (1, 1, found.hidden.shape[1])
    with TemporaryDirectory() as folder:
        options = with_threads(num_threads)
        options.register_custom_ops_library(str(build_library(Path(folder), compiler)))
        session = open_session([node], {"h": (FLOAT, shape)}, {"ids": INT32}, constants, options)

    def choose(index: int) -> Array:
        session.run(None, {"h": found.hidden[index].reshape(shape)})
        return EXACT

    return choose


def with_threads(num_threads: int) -> onnxruntime.SessionOptions:
    """Options of a session."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    return options


EXACT: Array = np.zeros(0, np.int64)
"""Stands for the true k."""


def open_session(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, tuple[int, ...]]],
    outputs: dict[str, int],
    constants: dict[str, Array],
    options: onnxruntime.SessionOptions,
) -> onnxruntime.InferenceSession:
    """A session of a few nodes."""
    graph = helper.make_graph(
        nodes,
        "selection",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("draftsmith", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def time_us(choose: Chooser, found: Scores) -> float:
    """Median microseconds a hidden state."""
    times = []
    for index in range(len(found.hidden)):
        start = time.perf_counter()
        choose(index)
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def measure(choose: Chooser, found: Scores, count: int) -> list[str]:
    """Share of the k best scores that are chosen, of top-1 tokens of the full head, and of its probability."""
    shares, hits, masses = [], [], []
    for index, (scores, logits) in enumerate(zip(found.scores, found.logits, strict=True)):
        best = np.argpartition(scores, -count)[-count:]
        ids = choose(index)
        ids = best if ids is EXACT else ids
        probabilities = np.exp(logits - logits.max(), dtype=np.float64)
        shares.append(len(np.intersect1d(ids, best)) / count)
        hits.append(float(logits.argmax() in ids))
        masses.append(float(probabilities[ids].sum() / probabilities.sum()))
    return [f"{statistics.mean(values):.1%}" for values in (shares, hits, masses)]


if __name__ == "__main__":
    main()
