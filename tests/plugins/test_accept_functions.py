"""LossyAccept's device functions that need no device, compiled for the CPU, against the NumPy reference."""

import itertools
import math
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from draftsmith.plugins.reference.accept_noise import COIN, RESIDUAL, gumbel_noise, position_key, position_uniform
from draftsmith.plugins.reference.accept_rules import binary_divergence, raise_by_price
from draftsmith.plugins.reference.accept_step import Rule, Strength
from draftsmith.plugins.reference.lossy_accept import advance_recovery

KERNELS = Path(__file__).parents[2] / "plugins" / "csrc" / "kernels"
DRIVER = Path(__file__).parent / "drivers" / "accept_functions.cc"
FLAGS = ("-std=c++17", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover")
Call = Callable[[Sequence[str]], list[list[float]]]


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Call:
    """Lines as the driver reads them, to the numbers that it answers."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    program = tmp_path_factory.mktemp("accept") / "functions"
    command = [compiler, *FLAGS, "-I", str(KERNELS), str(DRIVER), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-4000:]

    def run(lines: Sequence[str]) -> list[list[float]]:
        done = subprocess.run([str(program)], input="\n".join(lines), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]

    return run


def test_keys_and_uniforms_are_the_references(call: Call) -> None:
    seeds, positions = (0, 1, 2**63, 2**64 - 1), (0, 5, 2**40)
    keys = [position_key(seed, position) for seed in seeds for position in positions]
    lines = [f"uniform {key} {stream}" for key in keys for stream in (COIN, RESIDUAL)]

    found = call(lines)

    assert [one[0] for one in found] == [position_uniform(key, stream) for key in keys for stream in (COIN, RESIDUAL)]
    # A double holds a key's upper 53 bits.
    found = call([f"key {seed} {position}" for seed in seeds for position in positions])
    assert [one[0] for one in found] == [float(key) for key in keys]


def test_noise_is_the_references_within_float32(call: Call) -> None:
    key = position_key(77, 3)
    ids = np.arange(20000)

    found = np.array(call([f"noise {key} {i}" for i in ids.tolist()]))[:, 0]

    np.testing.assert_allclose(found, gumbel_noise(key, ids), atol=2e-6, rtol=1e-6)


def test_prices_and_divergences_hold_from_tiny_to_certain_masses(call: Call) -> None:
    outside = [1e-7, 1e-4, 0.02, 0.5, 0.98, 0.9999]
    masses = [1 - value for value in outside]
    prices = [1e-4, 0.1, 2.0, 30.0]
    cases = [(m, o, p) for (m, o), p in itertools.product(zip(masses, outside, strict=True), prices)]

    found = [one[0] for one in call([f"price {m!r} {o!r} {p!r}" for m, o, p in cases])]

    assert found == pytest.approx([raise_by_price(m, p) - m for m, _, p in cases], rel=3e-6, abs=1e-15)
    shares = [1e-4, 0.3, 0.9, 1.0]
    cases = [(s * o, m, o) for (m, o), s in itertools.product(zip(masses, outside, strict=True), shares)]
    found = [one[0] for one in call([f"divergence {r!r} {m!r} {o!r}" for r, m, o in cases])]
    wanted = [binary_divergence(m + r, m) if r < o else -math.log(m) for r, m, o in cases]
    assert found == pytest.approx(wanted, rel=2e-3, abs=2e-9)


def test_relaxed_rules_are_the_references(call: Call) -> None:
    settings = {
        Rule.EXACT: [(0.0, 0.0)],
        Rule.MENTORED_BUDGET: [(0.0, 0.0), (0.3, 0.0)],
        Rule.MENTORED_PRICE: [(0.0, 0.0), (1.5, 0.0)],
        Rule.LENIENT: [(1.0, 0.0), (0.25, 0.0)],
        Rule.TYPICAL: [(0.1, 0.3)],
        Rule.TOP_DELTA: [(0.2, 1.0), (0.2, 4.0), (0.0, 4.0)],
        Rule.THRESHOLD: [(1.0, 1.0), (0.5, 0.75), (1.0, 0.5)],
    }
    cases = [
        (Strength(rule=rule, first=first, second=second, left=left), factor)
        for rule, pairs in settings.items()
        for first, second in pairs
        for left in (-1.0, 0.0, 0.5, math.inf)
        for factor in (0.0, 0.5, 1.0)
    ]

    found = call([f"relax {int(s.rule)} {s.first} {s.second} {s.left} {factor}" for s, factor in cases])

    for (strength, factor), (rule, first, second) in zip(cases, found, strict=True):
        wanted = strength.relaxed(factor)
        assert rule == wanted.rule, (strength, factor)
        if wanted.rule != Rule.EXACT:
            assert (first, second) == pytest.approx((wanted.first, wanted.second), rel=1e-6)


def test_recovery_goes_through_the_references_states(call: Call) -> None:
    cases = [(state, low) for state in range(6) for low in (0, 1)]

    found = [one[0] for one in call([f"recovery {state} {low}" for state, low in cases])]

    assert found == [advance_recovery(state, bool(low)) for state, low in cases]
