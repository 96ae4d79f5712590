"""Tiny seeded EAGLE-3 drafts with any switch, held in memory, and a driver that steps a written draft with arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from draftsmith.builder.draft.checkpoint import DraftCheckpoint
from draftsmith.builder.spec.draft import DraftSpec
from draftsmith.builder.spec.ranking import Ranking
from draftsmith.builder.spec.target import ModelSpec, RopeSpec
from draftsmith.model_repo.contract.manifest import DraftEngine
from draftsmith.plugins.cpu_library import LIBRARY_NAME

FloatArray = npt.NDArray[np.float32]
COLUMNS = 64
Outputs = dict[str, npt.NDArray[Any]]


@dataclass(slots=True)
class ArrayWeights:
    """See ``DraftWeights``."""

    arrays: dict[str, FloatArray]

    def read(self, name: str) -> FloatArray:
        return self.arrays[name].copy()

    def close(self) -> None:
        """Nothing is mapped."""


def make_draft_spec(target: ModelSpec, **switches: Any) -> DraftSpec:
    """A draft of the target's width without switches; keywords replace fields."""
    values: dict[str, Any] = {
        "hidden_size": target.hidden_size,
        "intermediate_size": 80,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 32,
        "norm_eps": 1e-5,
        "activation": "silu",
        "attention_scale": 32**-0.5,
        "qkv_bias": False,
        "o_bias": False,
        "mlp_bias": False,
        "rope": RopeSpec(kind="default", theta=10000.0),
        "max_positions": 512,
        "target_hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
        "head_vocab_size": target.vocab_size,
        "feature_layers": (1, 2, 3),
        "fc_bias": False,
        "norm_before_fc": False,
        "fc_norm": False,
        "norm_before_residual": False,
        "feeds_back_normed": False,
        "norms_head_input": True,
        "embed_scale": 1.0,
        "own_embedding": False,
        "own_head": False,
        "window": None,
    }
    return DraftSpec(**values | switches)


def make_draft(target: ModelSpec, *, seed: int = 0, target_ids: Sequence[int] | None = None, **switches: Any) -> Any:
    """A ``DraftCheckpoint`` in memory; ``target_ids``: of a subset of its own. See ``make_draft_spec``."""
    rows = None if target_ids is None else np.array(target_ids, np.int32)
    if rows is not None:
        switches["head_vocab_size"] = len(rows)
    spec = make_draft_spec(target, **switches)
    return DraftCheckpoint(
        path=Path("tiny-draft"),
        format="speculators",
        spec=spec,
        weights=ArrayWeights(make_draft_weights(spec, seed)),
        target_ids=rows,
    )


def make_draft_weights(spec: DraftSpec, seed: int = 0) -> dict[str, FloatArray]:
    """Every tensor that any switch asks for, by our names."""
    random = np.random.default_rng(seed)
    d, wide, heads, keys = spec.hidden_size, spec.intermediate_size, spec.num_heads, spec.num_kv_heads
    shapes = {
        "fc": (d, spec.feature_size),
        "q_proj": (heads * spec.head_dim, 2 * d),
        "k_proj": (keys * spec.head_dim, 2 * d),
        "v_proj": (keys * spec.head_dim, 2 * d),
        "o_proj": (d, heads * spec.head_dim),
        "gate_proj": (wide, d),
        "up_proj": (wide, d),
        "down_proj": (d, wide),
        "embed_tokens": (spec.vocab_size, d),
        "lm_head": (spec.head_vocab_size, d),
    }
    arrays = {f"{n}.weight": random.normal(0, 1.5 * s[1] ** -0.5, s).astype(np.float32) for n, s in shapes.items()}
    arrays |= {f"{n}.bias": random.normal(0, 0.2, s[0]).astype(np.float32) for n, s in shapes.items()}
    norms = {
        "fc_input_norm": spec.feature_size,
        **dict.fromkeys(("embedding_norm", "hidden_norm", "mlp_norm", "norm"), d),
    }
    norms |= {f"fc_norm.{i}": spec.target_hidden_size for i in range(len(spec.feature_layers))}
    return arrays | {f"{n}.weight": random.normal(1, 0.2, size).astype(np.float32) for n, size in norms.items()}


def make_ranking(
    target: ModelSpec, *, rank: int, num_candidates: int, group_size: int = 0, seed: int = 5, **options: Any
) -> Ranking:
    """Random; ``group_size``: groups of that many tokens, the last one not full."""
    random = np.random.default_rng(seed)
    down = random.normal(0, target.hidden_size**-0.5, (rank, target.hidden_size)).astype(np.float32)
    size, groups = target.vocab_size, None
    if group_size:
        missing = -size % group_size
        order = np.concatenate([random.permutation(size), np.full(missing, -1)])
        groups = order.astype(np.int32).reshape(-1, group_size)
        size = len(groups)
    vocabulary = random.normal(0, 1, (size, rank)).astype(np.float32)
    return Ranking(down=down, vocabulary=vocabulary, num_candidates=num_candidates, groups=groups, **options)


@dataclass(slots=True)
class DraftSteps:
    """The graphs of a written draft over one cache of ``num_rows`` rows."""

    folder: Path
    engine: DraftEngine
    num_rows: int = 1
    _sessions: dict[str, Any] = field(default_factory=dict)
    _cache: dict[str, FloatArray] = field(default_factory=dict)

    def step(
        self,
        tokens: npt.ArrayLike,
        past: Sequence[int],
        *,
        features: npt.NDArray[Any] | None = None,
        hidden: npt.NDArray[Any] | None = None,
        mask: npt.NDArray[np.bool_] | None = None,
        counts: Sequence[int] | None = None,
        **sampling: npt.NDArray[Any],
    ) -> Outputs:
        """Outputs of every token of ``tokens`` [B, T] behind ``past`` [B]; ``mask`` [T, U] for all rows, None: chains.

        ``counts`` [B]: tokens of ragged rows.
        """
        ids = np.asarray(tokens, np.int32)
        rows, width = ids.shape
        mask = np.tri(width, dtype=np.bool_) if mask is None else mask
        depths = mask.sum(axis=1) - 1 - (mask.shape[1] - width)
        feeds: dict[str, npt.NDArray[Any]] = {
            "token_ids": ids,
            "positions": (np.array(past)[:, None] + depths).astype(np.int32),
            "past_lengths": np.array(past, np.int32),
            "query_lengths": np.array([width] * rows if counts is None else counts, np.int32),
            "tree_mask": np.broadcast_to(mask, (rows, *mask.shape)),
            "logits_index": np.tile(np.arange(width, dtype=np.int32), (rows, 1)),
        }
        if features is not None:
            feeds["features"] = features.astype(np.float32)
        if hidden is not None:
            feeds["hidden"] = hidden.astype(np.float32)
        if self.engine.is_native:
            feeds["noise_keys"] = np.zeros((rows, width), np.int64)
            feeds["inverse_temperature"] = np.ones((rows, width), np.float32)
            feeds["num_candidates"] = np.zeros((rows, width), np.int32)
            feeds |= sampling
        return self._run(self.engine.next_graph if features is None else str(self.engine.first_graph), feeds)

    def logits(self, outputs: Outputs, vocab_size: int) -> FloatArray:
        """[B, T, V]: candidates' logits by token, -inf elsewhere."""
        logits = outputs["candidate_logits"]
        if "candidate_ids" not in outputs:
            return np.asarray(logits)
        full = np.full((*logits.shape[:2], vocab_size + 1), -np.inf, np.float32)
        np.put_along_axis(full, outputs["candidate_ids"].astype(np.int64), logits, axis=-1)  # -1: the last column
        return full[..., :vocab_size]

    def _run(self, graph: str, feeds: dict[str, npt.NDArray[Any]]) -> Outputs:
        session = self._open(graph)
        for value in session.get_inputs():
            if value.name.startswith(("past_key", "past_value")) and value.name not in self._cache:
                shape = (self.num_rows, value.shape[1], COLUMNS, value.shape[3])
                self._cache[value.name] = np.zeros(shape, np.float32)
        names = [output.name for output in session.get_outputs()]
        outputs = dict(zip(names, session.run(names, {**feeds, **self._cache}), strict=True))
        self._cache = {name: outputs.pop(name.replace("past", "present")) for name in self._cache}
        return outputs

    def _open(self, graph: str) -> Any:
        if graph not in self._sessions:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            options.log_severity_level = 3
            if self.engine.is_native:
                options.register_custom_ops_library(str(self.folder / LIBRARY_NAME))
            path = self.folder / graph
            self._sessions[graph] = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return self._sessions[graph]
