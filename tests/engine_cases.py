"""Engines of tiny checkpoints for tests: built into a folder, opened as a session, stepped with plain lists."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.engines.base import BuildOptions, BuiltEngine
from draftsmith.builder.engines.onnxruntime import OnnxRuntimeBuilder
from draftsmith.builder.progress import Silent
from draftsmith.model_repo.contract.manifest import FORMAT_VERSION, EngineFile, Manifest, Precision
from draftsmith.model_repo.runtime.sessions.base import StepInputs, TargetSession
from draftsmith.model_repo.runtime.sessions.onnxruntime import OnnxRuntimeSession, open_session

FloatArray = npt.NDArray[np.float32]


def build_engine(checkpoint: Path, folder: Path, precision: Precision = "fp32", **options: Any) -> BuiltEngine:
    """Build ``checkpoint`` with the ONNX Runtime backend into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = BuildOptions(**{"precision": precision, "max_batch": 8, "max_length": 96, "max_query_len": 32, **options})
    with open_checkpoint(checkpoint) as opened:
        return OnnxRuntimeBuilder().build(opened, wanted, folder, progress=Silent())


def open_engine(
    checkpoint: Path, folder: Path, precision: Precision = "fp32", *, num_slots: int = 8, **options: Any
) -> OnnxRuntimeSession:
    """Build and open: a session with one thread."""
    built = build_engine(checkpoint, folder, precision, **options)
    with open_checkpoint(checkpoint) as opened:
        manifest = manifest_of(built, opened.spec.to_dict(), options.get("max_length", 96))
    return open_session(folder, manifest, num_threads=1, num_slots=num_slots)


def manifest_of(built: BuiltEngine, spec: dict[str, Any], max_length: int) -> Manifest:
    """A manifest with what a session reads; checksums and tokenizer are left out."""
    return Manifest(
        format_version=FORMAT_VERSION,
        draftsmith_version="0",
        model_name="tiny",
        backend=built.backend,
        backend_version=built.backend_version,
        precision=built.precision,
        spec=spec,
        vocab_size=spec["vocab_size"],
        max_batch=8,
        max_length=max_length,
        max_query_len=built.max_query_len,
        min_query_len=built.min_query_len,
        feature_layers=list(built.feature_layers),
        kv_cache=built.kv_cache,
        draft=None,
        bos_id=None,
        end_ids=[],
        special_tokens={},
        graph_file=built.graph_file,
        tokenizer_file="",
        chat_template_file=None,
        files=[EngineFile(name=name, num_bytes=0, sha256="0" * 64) for name in built.files],
        requires={},
        build={},
        quality={},
    )


def step_inputs(
    slots: Sequence[int],
    tokens: Sequence[Sequence[int]],
    past: Sequence[int],
    *,
    parents: Sequence[int] | None = None,
) -> StepInputs:
    """A step in which every token gets logits; rows may differ in length.

    ``parents``: the same tree for every row, each token's parent in the block (-1: the last cached one); None: chains.
    """
    width = max(map(len, tokens))
    ids = np.zeros((len(tokens), width), np.int32)
    for row, given in enumerate(tokens):
        ids[row, : len(given)] = given
    tree = chain_parents(width) if parents is None else list(parents)
    seen = ancestors(tree)
    depths = seen.sum(axis=1, dtype=np.int32) - 1
    past_lengths = np.asarray(past, np.int32)
    index = np.arange(width, dtype=np.int32)
    return StepInputs(
        slots=np.asarray(slots, np.int32),
        token_ids=ids,
        positions=past_lengths[:, None] + depths,
        past_lengths=past_lengths,
        query_lengths=np.asarray([len(given) for given in tokens], np.int32),
        tree_mask=np.broadcast_to(seen, (len(tokens), width, width)),
        logits_index=np.broadcast_to(index, (len(tokens), width)),
    )


def chain_parents(num_tokens: int) -> list[int]:
    """Each token's parent is the one before it."""
    return list(range(-1, num_tokens - 1))


def ancestors(parents: Sequence[int]) -> npt.NDArray[np.bool_]:
    """[T, T]: token t sees its ancestors and itself."""
    seen = np.eye(len(parents), dtype=np.bool_)
    for token, parent in enumerate(parents):
        if parent >= 0:
            seen[token] |= seen[parent]
    return seen


def fill_slot(session: TargetSession, slot: int, tokens: Sequence[int], chunk: int = 32) -> FloatArray:
    """Prefill a slot in chunks; logits of every token [len(tokens), V]."""
    parts = []
    for start in range(0, len(tokens), chunk):
        block = list(tokens[start : start + chunk])
        parts.append(session.step(step_inputs([slot], [block], [start])).logits[0].copy())
    return np.concatenate(parts)


def check_row_independence(session: TargetSession, random: np.random.Generator, copy: Callable[..., None]) -> None:
    """Assert that rows alone, one token a step, give the bits of batches, longer blocks and ragged rows.

    Needs 8 slots or more, capacity for 60 tokens. ``copy(source, destination, num_tokens)`` copies a slot.
    """
    lengths = [3, 17, 33, 40]
    blocks = [2, 5, 16]
    rows = [random.integers(3, session.vocab_size, 60).tolist() for _ in lengths]
    alone = []
    for row, length in enumerate(lengths):
        fill_slot(session, 4 + row, rows[row][:length])
        steps = [
            session.step(step_inputs([4 + row], [[rows[row][n]]], [n])).logits[0, 0].copy()
            for n in range(length, length + max(blocks))
        ]
        alone.append(np.stack(steps))
    for width in blocks:
        for counts in ([width] * 4, [1, width, max(1, width // 2), width]):
            for row, length in enumerate(lengths):
                copy(4 + row, row, length)
            tokens = [rows[r][n : n + count] for r, (n, count) in enumerate(zip(lengths, counts, strict=True))]
            logits = session.step(step_inputs(range(4), tokens, lengths)).logits
            for row, count in enumerate(counts):
                np.testing.assert_array_equal(logits[row, :count], alone[row][:count], err_msg=f"T={width} row {row}")
