"""Case files for the TensorRT driver (``drivers/case_file.h``), and reading back what it wrote."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
TYPES = {"float16": "half", "float32": "float", "int32": "int32", "int8": "int8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Random:
    """Numbers that the driver makes on the device: uniform in [-scale, scale)."""

    dtype: str
    shape: tuple[int, ...]
    seed: int
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginCase:
    """A plugin with its inputs. ``least_rows`` and ``most_rows``: range of the dimensions that ``varying`` names.

    ``varying``: inputs whose first dimension varies. ``outputs``: name, dtype and shape.
    """

    plugin: str
    attributes: Mapping[str, int]
    inputs: Mapping[str, Array | Random]
    outputs: Mapping[str, tuple[str, tuple[int, ...]]]
    varying: Sequence[str] = ()
    least_rows: int = 1
    most_rows: int = 16

    def write(self, folder: Path, name: str) -> Path:
        """The case and its inputs as files."""
        lines = [f"plugin {self.plugin}", *(f"attribute {key} {value}" for key, value in self.attributes.items())]
        for key, value in self.inputs.items():
            lines.append(f"input {key} {_describe(value)} {_source(value, folder / f'{name}.{key}.bin')}")
            if key in self.varying:
                shapes = [(rows, *value.shape[1:]) for rows in (self.least_rows, value.shape[0], self.most_rows)]
                lines.append(f"profile {key} {' '.join(map(_shape, shapes))}")
        for key, (dtype, shape) in self.outputs.items():
            lines.append(f"output {key} {TYPES[dtype]} {_shape(shape)} {self.output_path(folder, name, key)}")
        path = folder / f"{name}.case"
        path.write_text("\n".join(lines) + "\n", encoding="ascii")
        return path

    def read(self, folder: Path, name: str) -> dict[str, Array]:
        """Outputs by name."""
        found = {}
        for key, (dtype, shape) in self.outputs.items():
            found[key] = np.fromfile(self.output_path(folder, name, key), dtype).reshape(shape)
        return found

    def output_path(self, folder: Path, name: str, key: str) -> Path:
        """Where the driver writes an output."""
        return folder / f"{name}.{key}.out"


def _describe(value: Array | Random) -> str:
    return f"{TYPES[str(value.dtype)]} {_shape(value.shape)}"


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _source(value: Array | Random, path: Path) -> str:
    if isinstance(value, Random):
        return f"random:{value.seed}:{value.scale}"
    np.ascontiguousarray(value).tofile(path)
    return str(path)


def head_case(
    rows: int, hidden: int, rank: int, vocab: int, *, k: int, out: int, ranking: str = "float16", group_size: int = 1
) -> PluginCase:
    """A head near the rank of its ranking, so that the best tokens are among the candidates; three rows a request."""
    draw = np.random.default_rng(vocab + rows)
    num_ranked = -(-vocab // group_size)
    left = draw.standard_normal((num_ranked, rank))
    down = draw.standard_normal((rank, hidden)) / hidden**0.5
    head = np.repeat(left, group_size, axis=0)[:vocab] @ down
    head += 0.2 * draw.standard_normal(head.shape) / hidden**0.5
    inputs: dict[str, Array | Random] = {
        "hidden": draw.standard_normal((rows, hidden)).astype(np.float16),
        "w_down": down.astype(np.float16),
        "w_vocab": left.astype(np.float16),
        "w_head": head.astype(np.float16),
        "request_of_row": (np.arange(rows) // 3).astype(np.int32),
    }
    if ranking == "int8":
        scales = np.abs(left).max(axis=1) / 127
        inputs["w_vocab"] = np.rint(left / scales[:, None]).astype(np.int8)
        inputs["w_vocab_scales"] = scales.astype(np.float32)
    attributes = {"k": k, "out": out, "group_size": group_size}
    return PluginCase(
        plugin="SpecVocabHead",
        attributes=attributes,
        inputs=inputs,
        outputs=_head_outputs(rows, out),
        varying=("hidden", "request_of_row"),
    )


def timing_case(rows: int) -> PluginCase:
    """Qwen3-8B's shape, filled on the device; every row shares one request's candidates."""
    vocab, hidden, rank = 151_936, 4_096, 256
    inputs: dict[str, Array | Random] = {
        "hidden": Random(dtype="float16", shape=(rows, hidden), seed=1, scale=1.0),
        "w_down": Random(dtype="float16", shape=(rank, hidden), seed=2, scale=0.03),
        "w_vocab": Random(dtype="float16", shape=(vocab, rank), seed=3, scale=0.1),
        "w_head": Random(dtype="float16", shape=(vocab, hidden), seed=4, scale=0.03),
        "request_of_row": np.zeros(rows, np.int32),
    }
    return PluginCase(
        plugin="SpecVocabHead",
        attributes={"k": 2048, "out": 16},
        inputs=inputs,
        outputs=_head_outputs(rows, 16),
        varying=("hidden", "request_of_row"),
    )


def _head_outputs(rows: int, out: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        "candidate_ids": ("int32", (rows, out)),
        "candidate_logits": ("float32", (rows, out)),
        "log_sum_exp": ("float32", (rows,)),
    }


ROW_INPUTS = ("logits", "parents", "token_ids", "num_nodes", "row_floats", "row_ints", "row_keys", "relaxation")


def accept_case(requests: int, nodes: int, vocab: int) -> PluginCase:
    """Trees of chosen children, a rule and a temperature a request; the first child is often the best token."""
    draw = np.random.default_rng(requests * nodes)
    logits = (2 * draw.standard_normal((requests, nodes, vocab))).astype(np.float16)
    parents = np.full((requests, nodes), -1, np.int32)
    tokens = np.zeros((requests, nodes), np.int32)
    for b in range(requests):
        for n in range(1, nodes):
            parents[b, n] = draw.integers(max(0, n - 3), n)
            rank = int(draw.integers(0, 3))
            tokens[b, n] = np.argsort(-logits[b, parents[b, n]].astype(np.float32), kind="stable")[rank]
            siblings = tokens[b, 1:n][parents[b, 1:n] == parents[b, n]]
            if tokens[b, n] in siblings:
                tokens[b, n] = (int(siblings.max()) + 1) % vocab
    floats = np.zeros((requests, 8), np.float32)
    floats[:, :3] = [0.8, 0.95, 0.02]
    floats[:, 5] = np.inf
    ints = np.zeros((requests, 4), np.int32)
    ints[:, 1] = 50
    for b in range(requests):
        rule, first, second = _RULES[b % len(_RULES)]
        ints[b, 0], floats[b, 3:5] = rule, (first, second)
        ints[b, 2] = b % 2  # shared noise
        floats[b, 0] = 0.0 if b % 5 == 0 else 0.8
    keys = np.stack([draw.integers(0, 2**62, requests), draw.integers(0, 4096, requests)], axis=1)
    inputs: dict[str, Array | Random] = {
        "logits": logits,
        "parents": parents,
        "token_ids": tokens,
        "num_nodes": np.full(requests, nodes, np.int32),
        "row_floats": floats,
        "row_ints": ints,
        "row_keys": np.ascontiguousarray(keys.astype(np.int64)).view(np.int32),
        "relaxation": np.ones((requests, nodes), np.float32),
    }
    per_request = ("int32", (requests,))
    return PluginCase(
        plugin="LossyAccept",
        attributes={"num_candidates": 0},
        inputs=inputs,
        outputs={
            "accepted_nodes": ("int32", (requests, nodes)),
            "accepted_length": per_request,
            "bonus_token": per_request,
            "divergence": ("float32", (requests,)),
            "regret_nats": ("float32", (requests,)),
            "flags": per_request,
            "recovery_state": per_request,
        },
        varying=ROW_INPUTS,
        most_rows=32,
    )


# Number, first and second parameter: exact, mentored (budget, price), lenient, typical.
_RULES = ((0, 0.0, 0.0), (1, 0.3, 0.0), (2, 0.5, 0.0), (3, 0.5, 0.0), (4, 0.1, 0.3))
