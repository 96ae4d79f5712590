"""INT8 engines with our own CPU operators: a tree in one step gives the bits of plain decoding."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from draftsmith.plugins.cpu_library import find_compiler

from tests.engine_cases import ancestors, fill_slot, open_engine, step_inputs

PARENTS = [-1, 0, 0, 1, 2, 2, 3, 5, -1, 8, 7]


@pytest.mark.skipif(find_compiler() is None, reason="needs x86-64 Linux and a C compiler")
@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("past", [13, 40])
def test_a_token_of_a_tree_has_the_logits_of_its_path_decoded(
    family: str, past: int, tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    session = open_engine(tiny_checkpoint(family), tmp_path / "engine", "int8", extras={"kernels": "native"})
    random = np.random.default_rng(past)
    prompt, nodes = (random.integers(3, session.vocab_size, n).tolist() for n in (past, len(PARENTS)))
    for slot in range(2):
        fill_slot(session, slot, prompt)

    tree = session.step(step_inputs([0], [nodes], [past], parents=PARENTS)).logits[0].copy()

    for node, seen in enumerate(ancestors(PARENTS)):
        for depth, token in enumerate(np.flatnonzero(seen)):
            alone = session.step(step_inputs([1], [[nodes[token]]], [past + depth])).logits[0, 0]
        np.testing.assert_array_equal(tree[node], alone, err_msg=f"node {node}")
