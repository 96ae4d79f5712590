"""The draft length policy against a simulated machine: the clock is the simulation, nothing is timed."""

import numpy as np
import pytest
from draftsmith.model_repo.runtime.adaptive import AdaptiveDraftSize
from draftsmith.model_repo.runtime.cost_model import CostModel, Curve
from draftsmith.model_repo.runtime.draft_policy import FixedDraftSize, StepReport
from draftsmith.model_repo.runtime.draft_tree import NO_DRAFT, DraftTree
from draftsmith.model_repo.runtime.evidence import GREEDY, AcceptanceCounts
from draftsmith.model_repo.runtime.level_value import LevelOffer


def test_a_curve_is_linear_between_its_points_and_goes_on_beyond():
    curve = Curve()
    for x, value in ((1, 10.0), (5, 18.0), (9, 20.0)):
        curve.put(x, value)
    assert [curve.value(x) for x in (1, 2, 5, 7, 9, 13)] == [10, 12, 18, 19, 20, 22]
    assert curve.value(0) == 10


def small_cpu(rows, queries):
    """Milliseconds like those of SmolLM2 on two cores; ``rows * queries`` beyond 16 costs more."""
    return 7.0 + 0.3 * rows * queries + 0.4 * max(0, rows * queries - 16)


def flat_gpu(rows, queries):
    return 5.0 + 0.001 * rows * queries


def steep(rows, queries):
    return 2.0 * rows * queries


MACHINES = {"small CPU": small_cpu, "flat GPU": flat_gpu, "steep": steep}


def report(rows, queries, ms, tokens):
    return StepReport(num_rows=rows, num_queries=queries, verify_ms=ms, num_tokens=tokens, draft_ms=0.0)


def prune(policy, drafts, histories):
    policy.begin_step(histories)
    return policy.prune(drafts)


def simulate(machine, rate, *, policy, rows=1, num_steps=1500, seed=0, noise=0.0):
    """Tokens a millisecond where each drafted token is accepted with probability ``rate``."""
    rng = np.random.default_rng(seed)
    histories = [AcceptanceCounts() for _ in range(rows)]
    tokens = time = 0.0
    drafted = DraftTree.chain([0] * 15, evidence=2)
    for _ in range(num_steps):
        drafts = prune(policy, [drafted] * rows, histories)
        lengths = list(map(len, drafts))
        ms = machine(rows, 1 + max(lengths)) * float(np.exp(noise * rng.normal()))
        time += ms
        before = tokens
        for history, draft in zip(histories, drafts, strict=True):
            accepted = 0
            while accepted < len(draft) and rng.random() < rate:
                accepted += 1
            policy.learn(history, draft, range(accepted))
            tokens += 1 + accepted
        policy.observe_step(report(rows, 1 + max(lengths), ms, tokens - before))
    return tokens / time


def calibrated(machine):
    cost = CostModel()
    shapes = [(1, t) for t in (1, 2, 4, 8, 16)] + [(16, t) for t in (1, 2, 4)]
    cost.calibrate({shape: machine(*shape) for shape in shapes})
    return AdaptiveDraftSize(cost)


@pytest.mark.parametrize("rows", [1, 4, 16, 32])
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("machine", MACHINES)
def test_the_policy_is_never_under_95_percent_of_plain_and_near_the_best_fixed_length(machine, rate, rows):
    machine = MACHINES[machine]
    steps = 1200 // rows
    adaptive = simulate(machine, rate, policy=calibrated(machine), rows=rows, num_steps=steps)
    fixed = [
        simulate(machine, rate, policy=FixedDraftSize(length), rows=rows, num_steps=steps)
        for length in (0, 1, 3, 7, 15)
    ]
    assert adaptive >= 0.95 * fixed[0]
    assert adaptive >= 0.85 * max(fixed)


def test_without_calibration_the_shape_is_learned():
    policy = AdaptiveDraftSize(CostModel())
    plain = simulate(steep, 0.0, policy=FixedDraftSize(0))
    assert simulate(steep, 0.3, policy=policy, num_steps=4000) >= 0.95 * plain


def test_a_machine_that_becomes_slow_does_not_change_the_choice():
    policy = calibrated(small_cpu)
    simulate(small_cpu, 0.6, policy=policy)
    before = prune(policy, [DraftTree.chain([0] * 15, evidence=2)], [AcceptanceCounts()])
    simulate(lambda b, t: 4 * small_cpu(b, t), 0.6, policy=policy, num_steps=50)
    after = prune(policy, [DraftTree.chain([0] * 15, evidence=2)], [AcceptanceCounts()])
    assert abs(len(before[0]) - len(after[0])) <= 2


def test_noisy_times_do_not_cost_the_gain():
    adaptive = simulate(small_cpu, 0.6, policy=calibrated(small_cpu), noise=0.3)
    best = max(simulate(small_cpu, 0.6, policy=FixedDraftSize(n), noise=0.3) for n in (1, 3, 7))
    assert adaptive >= 0.85 * best


def test_drafting_comes_back_when_it_pays_again():
    policy = calibrated(small_cpu)
    simulate(small_cpu, 0.0, policy=policy, num_steps=500)
    resumed = simulate(small_cpu, 0.9, policy=policy, num_steps=2000)
    assert resumed >= 2.0 * simulate(small_cpu, 0.9, policy=FixedDraftSize(0))


def test_a_row_that_is_never_accepted_does_not_spoil_another_rows_drafts():
    policy = calibrated(small_cpu)
    good, bad = AcceptanceCounts(), AcceptanceCounts()
    for _ in range(50):
        good.add(2, 8, 8)
        bad.add(2, 1, 0)
    drafted = DraftTree.chain([0] * 15, evidence=2)
    assert len(prune(policy, [drafted], [good])[0]) >= 7
    assert len(prune(policy, [drafted], [bad])[0]) <= 1


def test_nothing_is_chosen_where_nothing_is_drafted():
    assert prune(calibrated(small_cpu), [NO_DRAFT] * 2, [AcceptanceCounts()] * 2) == [NO_DRAFT] * 2


def test_the_first_step_of_a_shape_is_not_counted():
    cost = CostModel()
    cost.calibrate({(1, 1): 5.0, (1, 2): 5.0, (1, 4): 6.0})
    cost.observe(1, 3, 500.0)
    assert cost.estimate(1, 3) == pytest.approx(5.5)
    cost.observe(1, 3, 0.0)  # a clock that stands still says nothing
    assert cost.estimate(1, 3) == pytest.approx(5.5)


def test_a_level_that_seemed_too_slow_is_tried_again():
    policy = AdaptiveDraftSize(CostModel())
    policy.cost.calibrate({(1, 1): 7.0, (1, 2): 7.3, (1, 4): 7.9, (1, 8): 9.1})
    for _ in range(2):
        policy.observe_level(1, 40.0)  # the machine did something else
    offer = LevelOffer(nodes=[[(0.8, GREEDY + 8)]], num_rows=1, depth=1)
    policy.begin_step([AcceptanceCounts()])
    tried = 0
    for _ in range(200):
        if policy.pick_width(offer):
            tried += 1
            policy.observe_level(1, 0.5)
    assert tried > 100
