"""LossyAccept's kernel against the NumPy reference: the same decisions, except at ties closer than float32 tells.

Every test runs on a GPU where there is one, and thread by thread on the host (``emulator/``)."""

import math
from dataclasses import replace

import numpy as np
import pytest
from draftsmith.plugins.accept_kernel import AcceptKernel
from draftsmith.plugins.kernel_library import ElementType, KernelError
from draftsmith.plugins.reference.accept_step import Rule

from tests.gpu.accept_cases import (
    RULES,
    AcceptCase,
    check,
    expect,
    params_of,
    random_case,
    relaxed,
    round_logits,
)
from tests.gpu.accept_device import DeviceAccept, bits
from tests.gpu.machines import Emulated, Machine

hypothesis = pytest.importorskip("hypothesis", reason="needs hypothesis, for random shapes")
strategies = hypothesis.strategies

TYPES = ("float16", "bfloat16", "float32")
MODES = {
    "shared": {"shared_noise": True},
    "uniform": {"shared_noise": False},
    "sampled": {"shared_noise": True, "sampled": True},
    "greedy": {"temperature": 0.0},
}


def check_on(machine: Machine, case: AcceptCase, *, offset: int = 0) -> dict[str, np.ndarray]:
    device = DeviceAccept(machine, case, offset=offset)
    device.launch()
    results = device.read()
    excused = check(case, results)
    assert excused <= 1 + len(case.params) // 100, f"{excused} of {len(case.params)} requests differ at ties"
    return results


@pytest.mark.parametrize("logits_type", TYPES)
@pytest.mark.parametrize("seed", range(4))
def test_batches_of_every_rule_and_truncation_agree(machine, logits_type, seed):
    check_on(machine, random_case(seed, requests=80, nodes=8, vocab=4099, logits_type=logits_type))


@pytest.mark.parametrize("logits_type", TYPES)
@pytest.mark.parametrize("num_candidates", [1, 7, 64, 513, 2048])
def test_sampled_chains_agree(machine, logits_type, num_candidates):
    case = random_case(
        num_candidates,
        requests=60,
        nodes=5,
        vocab=3001,
        logits_type=logits_type,
        sampled=True,
        num_candidates=num_candidates,
    )
    check_on(machine, case)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule[0].name.lower())
def test_every_rule_agrees_in_every_mode(machine, rule, mode):
    number, first, second = rule
    scales = (0.1, 0.5, 1.0, 2.0) if number in (Rule.MENTORED_BUDGET, Rule.MENTORED_PRICE) else (0.5, 1.0)
    choices = [{"rule": number, "first": first * s, "second": second, **MODES[mode]} for s in scales]
    sampled = mode == "sampled"
    case = random_case(
        7,
        requests=64,
        nodes=6,
        vocab=2500,
        logits_type="float16",
        sampled=sampled,
        num_candidates=80 * sampled,
        choices=choices,
    )
    check_on(machine, case)


@pytest.mark.parametrize("vocab", [1, 2, 31, 111, 1017, 1023, 1024, 1025, 2049, 32000, 151936, 262147])
@pytest.mark.parametrize("logits_type", TYPES)
def test_every_size_of_vocabulary_agrees(machine, vocab, logits_type):
    check_on(machine, random_case(vocab, requests=8, nodes=3, vocab=vocab, logits_type=logits_type))


@pytest.mark.parametrize("offset", range(8))
@pytest.mark.parametrize("logits_type", TYPES)
def test_logits_at_any_address_agree(machine, offset, logits_type):
    check_on(machine, random_case(9, requests=12, nodes=3, vocab=1531, logits_type=logits_type), offset=offset)


@pytest.mark.parametrize(("requests", "nodes"), [(1, 1), (1, 64), (3, 256), (200, 3), (33, 17)])
def test_every_number_of_requests_and_nodes_agrees(machine, requests, nodes):
    check_on(machine, random_case(10, requests=requests, nodes=nodes, vocab=700, logits_type="float16"))


@pytest.mark.parametrize("peak", [0.0, 8.0])
@pytest.mark.parametrize("shared", [False, True])
def test_truncations_that_keep_few_and_many_agree(machine, peak, shared):
    choices = [
        {"shared_noise": shared, **given}
        for given in (
            {"top_k": 1000},
            {"top_k": 9000, "top_p": 0.9},
            {"top_k": 30000, "min_p": 1e-4},
            {"top_p": 0.5},
            {"top_p": 0.97},
            {"top_p": 0.999, "temperature": 1.3},
            {"top_p": 0.0},
            {"min_p": 1.0},
            {"min_p": 1e-3, "temperature": 0.6},
            {"min_p": 1e-6, "top_p": 0.99},
            {"top_p": 0.99, "temperature": 5.0, "min_p": 1e-4},
            {"top_k": 2, "temperature": 3.0},
        )
    ]
    case = random_case(11, requests=24, nodes=3, vocab=60001, logits_type="float16", peak=peak, choices=choices)
    check_on(machine, case)


@pytest.mark.parametrize("logits_type", TYPES)
def test_equal_logits_go_by_their_ids(machine, logits_type):
    case = random_case(12, requests=80, nodes=3, vocab=9001, logits_type=logits_type)
    check_on(machine, replace(case, logits=np.zeros_like(case.logits)))
    check_on(machine, replace(case, logits=np.round(case.logits / 4) * 4))
    check_on(machine, replace(case, logits=round_logits(case.logits * 1e-7, logits_type)))


@pytest.mark.parametrize("logits_type", TYPES)
def test_rows_that_are_mostly_minus_infinity_agree(machine, logits_type):
    case = random_case(13, requests=40, nodes=3, vocab=5003, logits_type=logits_type)
    logits = case.logits.copy()
    logits[::3, :, 2:] = -np.inf
    logits[1::3, :, ::2] = -np.inf
    logits[2::3, :, 1:-1] = -np.inf
    check_on(machine, replace(case, logits=logits))


@pytest.mark.parametrize("logits_type", TYPES)
def test_great_logits_agree(machine, logits_type):
    # Relaxed rules see no child of p below float32's least number.
    choices = [
        {"temperature": temperature, "shared_noise": shared, **given}
        for temperature in (0.0, 0.3, 1.0, 1.4)
        for shared in (False, True)
        for given in ({}, {"top_k": 20}, {"top_p": 0.9}, {"min_p": 0.05}, {"top_k": 50, "top_p": 0.95})
    ]
    case = random_case(14, requests=40, nodes=3, vocab=3001, logits_type=logits_type, choices=choices)
    check_on(machine, replace(case, logits=round_logits(case.logits * 100, logits_type)))


@pytest.mark.parametrize("logits_type", TYPES)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_end_their_request_alone(machine, logits_type, value):
    case = random_case(15, requests=60, nodes=4, vocab=3001, logits_type=logits_type)
    sound = check_on(machine, case)
    logits = case.logits.copy()
    for b in range(0, 60, 2):
        logits[b, b % 4, slice(None) if value == -math.inf else (b * 997) % 3001] = value
    broken = check_on(machine, replace(case, logits=logits))

    assert broken["flags"].any()
    assert not broken["flags"][1::2].any()
    for name, values in sound.items():
        np.testing.assert_array_equal(broken[name][1::2], values[1::2], err_msg=name)


def test_nodes_behind_the_last_do_not_matter(machine):
    case = random_case(16, requests=60, nodes=6, vocab=1200, logits_type="float16")
    logits = case.logits.copy()
    for b, tree in enumerate(case.trees):
        logits[b, len(tree.parents) :] = math.nan
    check_on(machine, replace(case, logits=logits))


@pytest.mark.parametrize("sampled", [False, True])
def test_relaxation_at_each_node_agrees(machine, sampled):
    case = random_case(
        17,
        requests=80,
        nodes=6,
        vocab=2047,
        logits_type="float16",
        sampled=sampled,
        num_candidates=50 * sampled,
    )
    check_on(machine, relaxed(case, 1))


@pytest.mark.parametrize("sampled", [False, True])
def test_caps_and_recovery_agree(machine, sampled):
    choices = [
        {
            "rule": rule,
            "first": first,
            "second": second,
            "kl_cap": cap,
            "kl_spent": 0.05,
            "recovery_limit": limit,
            "recovery_state": state,
            "sampled": sampled,
        }
        for rule, first, second in RULES
        for cap in (0.05, 0.2, 1.0)
        for limit, state in ((0.0, 0), (0.2, 2), (0.9, 5))
    ]
    case = random_case(
        18,
        requests=2 * len(choices),
        nodes=5,
        vocab=600,
        logits_type="float16",
        sampled=sampled,
        num_candidates=30 * sampled,
        choices=choices,
    )
    results = check_on(machine, case)
    caps = np.array([one.kl_cap - one.kl_spent for one in case.params])
    assert (results["divergence"] <= np.maximum(caps, 0) * (1 + 1e-4) + 1e-6).all()


def test_every_launch_gives_the_same_bits(machine):
    chosen = random_case(19, requests=64, nodes=8, vocab=30011, logits_type="float16")
    chain = random_case(20, requests=32, nodes=4, vocab=5003, logits_type="float16", sampled=True, num_candidates=300)
    for case in (chosen, chain):
        for clean in (False, True):
            device = DeviceAccept(machine, case, clean_counters=clean)
            seen = set()
            for _ in range(3 if isinstance(machine, Emulated) else 10):
                device.launch()
                seen.add(bits(device.read()))
            assert len(seen) == 1


def test_a_launch_is_captured_and_replayed_with_other_inputs(machine):
    if isinstance(machine, Emulated):
        pytest.skip("needs an NVIDIA GPU")
    import torch

    case = random_case(21, requests=16, nodes=4, vocab=9001, logits_type="float16")
    other = random_case(22, requests=16, nodes=4, vocab=9001, logits_type="float16")
    for clean in (False, True):
        device = DeviceAccept(machine, case, clean_counters=clean)
        device.launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            device.launch()
        for given in (case, other, case):
            for name, values in given.inputs().items():
                device.inputs[name].write(values)
            graph.replay()
            check(given, device.read())


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(
    seed=strategies.integers(0, 2**31),
    sizes=strategies.fixed_dictionaries(
        {
            "requests": strategies.integers(1, 12),
            "nodes": strategies.integers(1, 12),
            "vocab": strategies.integers(1, 5000),
            "num_candidates": strategies.integers(0, 300),
        }
    ),
    logits_type=strategies.sampled_from(TYPES),
    peak=strategies.sampled_from([0.0, 3.0, 12.0]),
)
def test_random_shapes_agree(machine, seed, sizes, logits_type, peak):
    sampled = sizes["num_candidates"] > 0
    check_on(machine, random_case(seed, **sizes, logits_type=logits_type, sampled=sampled, peak=peak))


def small_device(machine: Machine) -> DeviceAccept:
    return DeviceAccept(
        machine,
        random_case(23, requests=2, nodes=2, vocab=64, logits_type="float16", sampled=True, num_candidates=4),
    )


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"num_requests": 0}, "invalid_shape"),
        ({"num_requests": 4097}, "invalid_shape"),
        ({"max_nodes": 257}, "invalid_shape"),
        ({"num_vocab": 0}, "invalid_shape"),
        ({"num_candidates": 2049}, "invalid_shape"),
        ({"num_candidates": -1}, "invalid_shape"),
        ({"logits_type": ElementType.INT8}, "unsupported_type"),
        ({"clean_counters": 2}, "invalid_parameter"),
    ],
)
def test_a_shape_out_of_range_is_refused(machine, changes, status):
    shape = replace(small_device(machine).shape, **changes)

    with pytest.raises(KernelError) as refused:
        AcceptKernel(machine.library).workspace_bytes(shape)

    assert refused.value.name == status
    assert next(iter(changes)) in refused.value.detail


@pytest.mark.parametrize(
    "name", ["logits", "parents", "num_nodes", "row_keys", "candidate_ids", "candidate_log_probs", "flags", "workspace"]
)
def test_a_missing_pointer_is_refused(machine, name):
    with pytest.raises(KernelError, match=f"null_pointer: {name}: expected a device pointer"):
        small_device(machine).launch(**{name: 0})


@pytest.mark.parametrize(("name", "step"), [("logits", 1), ("token_ids", 2), ("row_keys", 4), ("workspace", 128)])
def test_a_misaligned_pointer_is_refused(machine, name, step):
    device = small_device(machine)

    with pytest.raises(KernelError, match=f"misaligned_pointer: {name}"):
        device.launch(**{name: getattr(device.arguments, name) + step})


def test_a_workspace_too_small_is_refused(machine):
    device = small_device(machine)

    with pytest.raises(KernelError, match="workspace_too_small: workspace: expected at least"):
        device.launch(workspace_bytes=device.arguments.workspace_bytes - 1)


def test_parents_that_make_no_tree_end_the_walk(machine):
    case = random_case(24, requests=6, nodes=4, vocab=300, logits_type="float16", choices=[{"temperature": 0.0}])
    device = DeviceAccept(machine, case)
    broken = np.array(
        [[3, 0, 1, 2], [-1, 2, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [-1, 900, -900, 3], [2, 3, 0, 1]], np.int32
    )
    device.inputs["parents"].write(broken)
    device.inputs["num_nodes"].write(np.full(6, 2**31 - 1, np.int32))

    device.launch()
    results = device.read()

    assert (results["accepted_length"] < 4).all()
    assert ((results["bonus_token"] >= 0) & (results["bonus_token"] < 300)).all()


def test_few_decisions_of_large_batches_lie_at_ties(machine):
    case = random_case(25, requests=600, nodes=4, vocab=1000, logits_type="float16")
    device = DeviceAccept(machine, case)
    device.launch()

    assert check(case, device.read(), expect(case)) <= 3


def test_a_seeds_64_bits_and_the_position_count(machine):
    case = random_case(26, requests=40, nodes=2, vocab=5000, logits_type="float16", choices=[{"top_p": 1.0}])
    params = [
        params_of(seed=seed, position=position)
        for seed in (0, 1, 2**63, 2**64 - 1)
        for position in (0, 1, 2**31, 2**40)
    ]
    case = replace(case, params=(params * 3)[:40])
    check_on(machine, case)
