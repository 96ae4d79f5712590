"""The definition of ``LossyAccept``: hand-worked cases, laws of what it emits, optimality, neutral settings, bounds."""

import math
from dataclasses import replace

import numpy as np
import pytest
from draftsmith.model_repo.contract.params import SamplingParams
from draftsmith.model_repo.runtime import noise as served_noise
from draftsmith.model_repo.runtime import sampling as served
from draftsmith.plugins.reference.accept_noise import gumbel_noise, position_key, position_uniform
from draftsmith.plugins.reference.accept_rules import (
    Candidates,
    binary_divergence,
    clip_by_budget,
    clip_by_price,
    raise_by_budget,
    raise_by_price,
)
from draftsmith.plugins.reference.accept_step import Rule
from draftsmith.plugins.reference.accept_target import Comparisons, find_target
from draftsmith.plugins.reference.lossy_accept import AcceptParams, AcceptTree, advance_recovery, lossy_accept
from scipy import optimize, stats

P = np.array([0.4, 0.25, 0.15, 0.1, 0.07, 0.03])
Q = np.array([0.1, 0.5, 0.3, 0.0, 0.1, 0.0])
NUM_SEEDS = 2000


def chain(*tokens: int) -> AcceptTree:
    """Node 0 (its token is of no account) and each token after the one before."""
    return AcceptTree(parents=np.arange(-1, len(tokens), dtype=np.int32), token_ids=np.array([0, *tokens], np.int32))


def siblings(*tokens: int) -> AcceptTree:
    return AcceptTree(parents=np.array([-1, *[0] * len(tokens)], np.int32), token_ids=np.array([0, *tokens], np.int32))


def sampled(token: int, q: np.ndarray) -> AcceptTree:
    """One token drawn from q, whose support alone is listed."""
    ids = np.flatnonzero(q)
    return replace(
        chain(token),
        candidate_ids=np.tile(ids.astype(np.int32), (2, 1)),
        candidate_log_probs=np.tile(np.log(q[ids]).astype(np.float32), (2, 1)),
    )


def rows(p: np.ndarray, count: int) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.tile(np.log(p).astype(np.float32), (count, 1))


def first_token(tree: AcceptTree, params: AcceptParams, p: np.ndarray = P) -> tuple[int, float]:
    """The token emitted at the first position, and what that position spent."""
    result = lossy_accept(rows(p, len(tree.parents)), tree, params)
    token = int(tree.token_ids[result.nodes[0]]) if result.nodes else result.bonus_token
    return token, result.divergence


def count_tokens(tree: AcceptTree, params: AcceptParams) -> np.ndarray:
    tokens = [first_token(tree, replace(params, seed=seed))[0] for seed in range(NUM_SEEDS)]
    return np.bincount(tokens, minlength=len(P))


def count_sampled(q: np.ndarray, params: AcceptParams) -> np.ndarray:
    """As ``count_tokens`` with a draft drawn anew from q for each seed."""
    drawn = np.random.default_rng(3).choice(len(q), NUM_SEEDS, p=q)
    tokens = [first_token(sampled(int(x), q), replace(params, seed=seed))[0] for seed, x in enumerate(drawn)]
    return np.bincount(tokens, minlength=len(P))


def assert_law(counts: np.ndarray, law: np.ndarray) -> None:
    assert counts[law == 0].sum() == 0
    kept = law > 0
    assert stats.chisquare(counts[kept], law[kept] / law[kept].sum() * counts.sum()).pvalue > 1e-4


def random_case(rng: np.random.Generator, size: int = 12) -> tuple[np.ndarray, np.ndarray]:
    return rng.dirichlet(np.full(size, 0.4)) + 1e-9, rng.dirichlet(np.full(size, 0.4)) + 1e-9


def test_noise_is_that_of_the_decoding_loop() -> None:
    ids = np.array([0, 1, 7, 151_935])
    for seed, position in ((0, 0), (2**64 - 1, 5), (123456789, 4_000_000)):
        key = served_noise.position_key(seed, position)
        assert position_key(seed, position) == key
        assert position_key(seed - 2**64, position) == key
        assert position_uniform(key, 1) == served_noise.position_uniform(key, 1)
        np.testing.assert_array_equal(gumbel_noise(key, ids), served_noise.gumbel(served_noise.token_bits(key, ids)))


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [(1.0, 0, 1.0, 0.0), (0.7, 5, 1.0, 0.0), (1.3, 0, 0.8, 0.0), (1.0, 0, 1.0, 0.1), (0.9, 20, 0.9, 0.02)],
)
def test_target_and_shared_draw_are_those_of_the_decoding_loop(
    temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    rng = np.random.default_rng(0)
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    for seed in range(50):
        logits = rng.normal(0, 2, 64).astype(np.float16).astype(np.float32)
        target = find_target(
            logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, comparisons=Comparisons()
        )
        np.testing.assert_allclose(target.p, served.find_probabilities(logits, params), rtol=1e-5, atol=1e-12)
        key = position_key(seed, 3)
        assert target.draw_shared(key) == served.draw(logits, params, key)


@pytest.mark.parametrize("greedy", [{"temperature": 0.0}, {"temperature": 1e-6}, {"top_k": 1}])
@pytest.mark.parametrize("is_sampled", [False, True])
def test_greedy_exact_rejects_a_draft_that_is_not_the_argmax(greedy: dict[str, float], is_sampled: bool) -> None:
    p, q = np.array([0.3, 0.5, 0.2]), np.array([0.2, 0.5, 0.3])

    result = lossy_accept(rows(p, 2), sampled(0, q), AcceptParams(sampled=is_sampled, **greedy))  # type: ignore[arg-type]

    assert (result.nodes, result.bonus_token, result.regret_nats) == ((), 1, 0.0)


def test_exact_text_with_shared_noise_does_not_depend_on_the_tree() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 1, (4, 8)).astype(np.float32)
    plain = [lossy_accept(logits[d : d + 1], chain(), AcceptParams(seed=9, position=d)).bonus_token for d in range(4)]

    right = lossy_accept(logits, chain(*plain[:3]), AcceptParams(seed=9))
    wrong = lossy_accept(logits, chain(plain[0], (plain[1] + 1) % 8, 0), AcceptParams(seed=9))

    assert (right.nodes, right.bonus_token) == ((1, 2, 3), plain[3])
    assert (wrong.nodes, wrong.bonus_token) == ((1,), plain[1])


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("children", [(), (0,), (5, 1), (1, 3, 0)])
def test_exact_emits_the_targets_distribution_whatever_the_children(shared: bool, children: tuple[int, ...]) -> None:
    assert_law(count_tokens(siblings(*children), AcceptParams(shared_noise=shared)), P)


@pytest.mark.parametrize(
    "q", [Q, np.eye(6)[2], P, np.array([0, 0, 0, 0.2, 0.3, 0.5])], ids=["part", "one", "p", "rare"]
)
def test_exact_emits_the_targets_distribution_after_a_sampled_draft(q: np.ndarray) -> None:
    assert_law(count_sampled(q, AcceptParams(sampled=True)), P)


def test_exact_respects_truncation() -> None:
    counts = count_tokens(siblings(4, 1), AcceptParams(shared_noise=False, top_k=4, top_p=0.75))

    assert_law(counts, np.where(np.arange(6) < 3, P, 0) / P[:3].sum())


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    ("rule", "first"), [(Rule.MENTORED_BUDGET, 0.1), (Rule.MENTORED_PRICE, 0.8), (Rule.LENIENT, 0.7)]
)
def test_relaxed_children_hold_the_raised_mass_and_spend_what_is_reported(
    shared: bool, rule: Rule, first: float
) -> None:
    params = AcceptParams(rule=rule, first=first, shared_noise=shared)
    mass = P[1] + P[3]
    raised = {
        Rule.MENTORED_BUDGET: raise_by_budget(mass, first),
        Rule.MENTORED_PRICE: raise_by_price(mass, first),
        Rule.LENIENT: mass / first,
    }[rule]
    inside = np.isin(np.arange(6), [1, 3])
    law = np.where(inside, P * raised / mass, P * (1 - raised) / (1 - mass))

    assert_law(count_tokens(siblings(1, 3), params), law)
    assert first_token(siblings(1, 3), params)[1] == pytest.approx(stats.entropy(law, P), rel=1e-5)


@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [
        (Rule.MENTORED_BUDGET, 0.05, 0.0),
        (Rule.MENTORED_PRICE, 0.6, 0.0),
        (Rule.LENIENT, 0.6, 0.0),
        (Rule.TYPICAL, 0.3, 0.6),
    ],
)
def test_what_a_sampled_draft_spends_is_the_divergence_of_what_it_emits(
    rule: Rule, first: float, second: float
) -> None:
    params = AcceptParams(rule=rule, first=first, second=second, sampled=True)
    counts = count_sampled(Q, params)

    spent = first_token(sampled(1, Q), params)[1]

    # The plug-in estimate of a divergence is high by about (V - 1) / 2n.
    assert stats.entropy(counts / counts.sum(), P) == pytest.approx(spent, abs=0.02)
    assert spent > 0.01


def test_clip_by_budget_is_what_a_convex_solver_finds() -> None:
    rng = np.random.default_rng(5)
    for budget in (0.01, 0.1, 0.5):
        p, q = random_case(rng, 6)
        p, q = p / p.sum(), q / q.sum()
        candidates = Candidates(q=q, p=p, p_outside=0.0)
        ours = candidates.clip(clip_by_budget(candidates, budget))
        # Variables: pi, then t <= min(q, pi).
        solved = optimize.minimize(
            lambda x: -x[6:].sum(),
            np.concatenate([p, np.minimum(p, q) * 0.99]),
            jac=lambda _: np.concatenate([np.zeros(6), -np.ones(6)]),
            bounds=[(1e-12, 1)] * 6 + [(0, value) for value in q],
            constraints=[
                {"type": "eq", "fun": lambda x: x[:6].sum() - 1},
                {"type": "ineq", "fun": lambda x: x[:6] - x[6:]},
                {"type": "ineq", "fun": lambda x, p=p, b=budget: b - (x[:6] * np.log(x[:6] / p)).sum()},
            ],
            method="SLSQP",
            options={"maxiter": 1000, "ftol": 1e-12},
        )
        assert ours.sum() == pytest.approx(1, abs=1e-9)
        assert candidates.divergence(ours, 0.0) <= budget + 1e-12
        assert np.minimum(ours, q).sum() >= -solved.fun - 1e-6


def test_clip_leaves_the_rest_of_the_vocabulary_in_proportion_and_keeps_the_mass() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        p, q = random_case(rng)
        p, q = p / p.sum(), q[:5] / q[:5].sum()
        candidates = Candidates(q=q, p=p[:5], p_outside=float(p[5:].sum()))
        for bounds in (clip_by_budget(candidates, 0.2), clip_by_price(candidates, 0.7)):
            assert bounds.low <= 1 <= bounds.high
            assert candidates.mass(bounds) == pytest.approx(1, abs=1e-9)
        price = clip_by_price(candidates, 0.7)
        assert price.high / price.low == pytest.approx(math.exp(0.7), rel=1e-9)


def test_a_draft_within_the_budget_is_always_accepted() -> None:
    budget = stats.entropy(Q, P) + 1e-6
    params = AcceptParams(rule=Rule.MENTORED_BUDGET, first=budget, sampled=True)

    for seed in range(200):
        for token in np.flatnonzero(Q).tolist():
            assert first_token(sampled(token, Q), replace(params, seed=seed)) == (
                token,
                pytest.approx(budget, abs=1e-5),
            )


NEUTRAL = [
    (Rule.MENTORED_BUDGET, 0.0, 0.0),
    (Rule.MENTORED_PRICE, 0.0, 0.0),
    (Rule.LENIENT, 1.0, 0.0),
    (Rule.THRESHOLD, 1.0, 1.0),
]


@pytest.mark.parametrize(
    ("rule", "first", "second", "mode"),
    # Threshold takes a sampled child as given: exact in law there, by another coin.
    [(*n, mode) for n in NEUTRAL for mode in ("shared", "uniform", "greedy", "sampled")][:-1],
)
def test_a_neutral_rule_is_the_exact_rule(rule: Rule, first: float, second: float, mode: str) -> None:
    rng = np.random.default_rng(7)
    exact = AcceptParams(
        shared_noise=mode == "shared", sampled=mode == "sampled", temperature=0.0 if mode == "greedy" else 0.9
    )
    for seed in range(100):
        q = rng.dirichlet(np.ones(6))
        tree = sampled(int(rng.integers(6)), q) if mode == "sampled" else siblings(*rng.permutation(6)[:3].tolist())
        logits = rng.normal(0, 1, (4, 6)).astype(np.float32)
        neutral = replace(exact, rule=rule, first=first, second=second, seed=seed)
        assert lossy_accept(logits, tree, neutral) == lossy_accept(logits, tree, replace(exact, seed=seed))


@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        (Rule.MENTORED_BUDGET, [0.0, 0.01, 0.1, 0.5, 3.0]),
        (Rule.MENTORED_PRICE, [0.0, 0.1, 0.5, 2.0]),
        (Rule.LENIENT, [1.0, 0.9, 0.5, 0.1]),
    ],
)
@pytest.mark.parametrize("mode", ["shared", "uniform", "sampled"])
def test_acceptance_never_falls_when_a_rule_is_relaxed(rule: Rule, settings: list[float], mode: str) -> None:
    rng = np.random.default_rng(8)
    for seed in range(60):
        tree = sampled(int(rng.choice(6, p=Q)), Q) if mode == "sampled" else siblings(4, 2)
        params = AcceptParams(rule=rule, shared_noise=mode == "shared", sampled=mode == "sampled", seed=seed)
        accepted = [len(lossy_accept(rows(P, 3), tree, replace(params, first=s)).nodes) for s in settings]
        assert accepted == sorted(accepted)


@pytest.mark.parametrize("is_sampled", [False, True])
@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [
        (Rule.MENTORED_BUDGET, 0.2, 0.0),
        (Rule.MENTORED_PRICE, 2.0, 0.0),
        (Rule.LENIENT, 0.5, 0.0),
        (Rule.TYPICAL, 0.09, 0.5),
        (Rule.THRESHOLD, 0.3, 0.5),
    ],
)
def test_a_sequence_never_spends_more_than_its_cap(rule: Rule, first: float, second: float, is_sampled: bool) -> None:
    tree = chain(1, 2, 1, 1)
    ids = np.flatnonzero(Q)
    tree = replace(
        tree,
        candidate_ids=np.tile(ids.astype(np.int32), (5, 1)),
        candidate_log_probs=np.tile(np.log(Q[ids]).astype(np.float32), (5, 1)),
    )
    for seed in range(100):
        params = AcceptParams(rule=rule, first=first, second=second, sampled=is_sampled, seed=seed, kl_cap=0.3)
        assert lossy_accept(rows(P, 5), tree, replace(params, kl_spent=0.1)).divergence <= 0.2 + 1e-9


def test_protected_nodes_are_exact() -> None:
    params = AcceptParams(rule=Rule.MENTORED_BUDGET, first=5.0)
    tree = replace(siblings(5, 4), relaxation=np.zeros(3, np.float32))
    for seed in range(50):
        exact = lossy_accept(rows(P, 3), tree, AcceptParams(seed=seed))
        assert lossy_accept(rows(P, 3), tree, replace(params, seed=seed)) == exact


def test_greedy_budget_bounds_the_regret_and_takes_the_most_probable_child() -> None:
    params = AcceptParams(rule=Rule.MENTORED_BUDGET, first=1.1, temperature=0.0)

    result = lossy_accept(rows(P, 4), siblings(5, 2, 4), params)  # log 0.4 / 0.15 = 0.98

    assert (result.nodes, result.divergence) == ((2,), 0.0)
    assert result.regret_nats == pytest.approx(math.log(0.4 / 0.15), rel=1e-6)
    assert lossy_accept(rows(P, 4), siblings(5, 2, 4), replace(params, first=0.9)).bonus_token == 0


@pytest.mark.parametrize(
    ("delta", "top_k", "tokens", "expected"),
    [
        (0.2, 10, (1,), 1),
        (0.1, 10, (1,), 0),
        (0.3, 2, (2,), 0),
        (0.3, 3, (2,), 2),
        (0.3, 3, (2, 1), 1),
        (0.0, 9, (1,), 0),
    ],
)
def test_top_delta_accepts_what_is_near_the_top(
    delta: float, top_k: int, tokens: tuple[int, ...], expected: int
) -> None:
    params = AcceptParams(rule=Rule.TOP_DELTA, first=delta, second=top_k)

    assert first_token(siblings(*tokens), params)[0] == expected


def test_threshold_uses_one_coin_for_all_siblings() -> None:
    """SGLang's rule at acc = 0.5: child 0 takes coins below p0 / 0.5, child 1 those below (p0 + p1) / 0.5."""
    counts = count_tokens(siblings(3, 2), AcceptParams(rule=Rule.THRESHOLD, first=1.0, second=0.5, shared_noise=False))

    rest = np.where(np.isin(np.arange(6), [2, 3]), 0, P)
    law = rest / rest.sum() * 0.5
    law[3], law[2] = 0.2, 0.3
    assert_law(counts, law)
    single = AcceptParams(rule=Rule.THRESHOLD, first=0.2, second=1.0)
    assert all(first_token(siblings(1), replace(single, seed=seed))[0] == 1 for seed in range(50))


def test_typical_decides_by_entropy() -> None:
    entropy = float(-(P * np.log(P)).sum())
    params = AcceptParams(rule=Rule.TYPICAL, first=0.9, second=0.14 * math.exp(entropy))  # p above 0.14

    assert first_token(siblings(4, 2), params) == (2, pytest.approx(-math.log(0.15), rel=1e-5))
    assert_law(count_tokens(siblings(4, 3), params), np.where(np.isin(np.arange(6), [3, 4]), 0, P))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_broken_row_on_the_path_accepts_nothing(value: float) -> None:
    logits = rows(np.eye(6)[2] * 0.9 + 0.01, 3)
    logits[1, :] = value if value < 0 else logits[1]
    logits[1, 3] = value
    on_path = lossy_accept(logits, chain(2, 2), AcceptParams(temperature=0.0))
    off_path = lossy_accept(logits, chain(0, 2), AcceptParams(temperature=0.0))

    assert (on_path.broken, on_path.nodes, on_path.bonus_token) == (True, (), -1)
    assert (off_path.broken, off_path.nodes, off_path.bonus_token) == (False, (), 2)


def test_recovery_is_exact_from_three_low_tokens_until_three_high_ones() -> None:
    states = [0]
    for low in (True, True, False, True, True, True, False, True, False, False, False, True):
        states.append(advance_recovery(states[-1], low))
    assert states == [0, 1, 2, 0, 1, 2, 3, 4, 3, 4, 5, 0, 1]
    params = AcceptParams(rule=Rule.MENTORED_BUDGET, first=5.0, temperature=0.0, recovery_limit=0.2)
    result = lossy_accept(rows(P, 6), chain(4, 4, 4, 4, 4), params)
    assert (result.nodes, result.bonus_token, result.recovery_state) == ((1, 2, 3), 0, 4)


def test_children_that_are_no_tokens_or_repeat_are_passed_over() -> None:
    tree = siblings(-1, 7, 0, 0)
    result = lossy_accept(rows(P, 5), tree, AcceptParams(temperature=0.0))

    assert result.nodes == (3,)


def test_binary_divergence_at_its_ends() -> None:
    assert binary_divergence(1.0, 0.25) == pytest.approx(math.log(4))
    assert raise_by_budget(0.25, 2.0) == 1.0
    assert raise_by_budget(0.0, 2.0) == 0.0
