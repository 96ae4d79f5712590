"""Inputs for LossyAccept, their layout in memory, and the comparison of a launch with the reference."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from draftsmith.plugins.accept_kernel import NUM_FLOATS, NUM_INTS, SAMPLED, SHARED_NOISE, AcceptShape
from draftsmith.plugins.kernel_library import ElementType
from draftsmith.plugins.reference.accept_step import Rule
from draftsmith.plugins.reference.lossy_accept import Accepted, AcceptParams, AcceptTree, lossy_accept

Array = npt.NDArray[Any]
LogitsType = Literal["float16", "bfloat16", "float32"]
# Nats of a score, or shares of what is compared: what float32 may turn.
TIE = 2e-5
OUTPUTS = {
    "accepted_nodes": np.int32,
    "accepted_length": np.int32,
    "bonus_token": np.int32,
    "divergence": np.float32,
    "regret_nats": np.float32,
    "flags": np.int32,
    "recovery_state": np.int32,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptCase:
    """Requests of one launch: logits float32 [B, N, V] as the type can hold them, a tree and parameters each."""

    logits: npt.NDArray[np.float32]
    logits_type: LogitsType
    trees: Sequence[AcceptTree]
    params: Sequence[AcceptParams]
    num_candidates: int = 0

    def shape(self, *, clean_counters: bool = False) -> AcceptShape:
        requests, nodes, vocab = self.logits.shape
        return AcceptShape(
            num_requests=requests,
            max_nodes=nodes,
            num_vocab=vocab,
            num_candidates=self.num_candidates,
            logits_type=ElementType[self.logits_type.upper()],
            clean_counters=clean_counters,
        )

    def inputs(self) -> dict[str, Array]:
        """The launch's tensors by name, bfloat16 as its bits; ``relaxation`` where a tree has one."""
        requests, nodes, _ = self.logits.shape
        given: dict[str, Array] = {
            "logits": to_bits(self.logits, self.logits_type),
            "parents": np.full((requests, nodes), -7, np.int32),
            "token_ids": np.full((requests, nodes), -7, np.int32),
            "num_nodes": np.array([len(tree.parents) for tree in self.trees], np.int32),
            "row_floats": np.array([_floats(one) for one in self.params], np.float32).reshape(requests, NUM_FLOATS),
            "row_ints": np.array([_ints(one) for one in self.params], np.int32).reshape(requests, NUM_INTS),
            "row_keys": np.array([[_signed(one.seed), one.position] for one in self.params], np.int64),
        }
        if self.num_candidates:
            given["candidate_ids"] = np.full((requests, nodes, self.num_candidates), -1, np.int32)
            given["candidate_log_probs"] = np.full((requests, nodes, self.num_candidates), np.nan, np.float32)
        if any(tree.relaxation is not None for tree in self.trees):
            given["relaxation"] = np.ones((requests, nodes), np.float32)
        for b, tree in enumerate(self.trees):
            count = len(tree.parents)
            given["parents"][b, :count] = tree.parents
            given["token_ids"][b, :count] = tree.token_ids
            if tree.candidate_ids is not None and tree.candidate_log_probs is not None:
                width = tree.candidate_ids.shape[1]
                given["candidate_ids"][b, :count, :width] = tree.candidate_ids
                given["candidate_log_probs"][b, :count, :width] = tree.candidate_log_probs
            if tree.relaxation is not None:
                given["relaxation"][b, :count] = tree.relaxation
        return given

    def outputs(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the launch's results."""
        requests, nodes, _ = self.logits.shape
        return {name: (requests, nodes) if name == "accepted_nodes" else (requests,) for name in OUTPUTS}


def _signed(seed: int) -> int:
    return seed - 2**64 if seed >= 2**63 else seed


def _floats(params: AcceptParams) -> list[float]:
    return [
        params.temperature,
        params.top_p,
        params.min_p,
        params.first,
        params.second,
        params.kl_cap,
        params.kl_spent,
        params.recovery_limit,
    ]


def _ints(params: AcceptParams) -> list[int]:
    flags = SHARED_NOISE * params.shared_noise + SAMPLED * params.sampled
    return [int(params.rule), params.top_k, flags, params.recovery_state]


def to_bits(values: npt.NDArray[np.float32], name: LogitsType) -> Array:
    if name == "bfloat16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(name)


def round_logits(values: Array, name: LogitsType) -> npt.NDArray[np.float32]:
    """The nearest (bfloat16: the next towards 0) numbers of a type."""
    wide = np.ascontiguousarray(values, np.float32)
    if name == "bfloat16":
        return (wide.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    with np.errstate(over="ignore"):
        return wide.astype(name).astype(np.float32)


def params_of(**values: Any) -> AcceptParams:
    """Parameters as float32 holds them."""
    return AcceptParams(**{k: float(np.float32(v)) if isinstance(v, float) else v for k, v in values.items()})


def random_logits(draw: np.random.Generator, shape: tuple[int, ...], name: LogitsType, *, peak: float) -> Array:
    """Normal numbers with a few much greater ones a row, as a model's are; ``peak`` 0: none."""
    logits = 2 * draw.standard_normal(shape)
    if peak:
        greater = draw.random(shape) < 20 / shape[-1]
        logits = logits + greater * draw.gamma(2.0, peak / 2, shape)
    return round_logits(logits, name)


def random_tree(draw: np.random.Generator, logits: Array, num_nodes: int) -> AcceptTree:
    """A tree whose tokens are mostly among the best of their parents' logits [N, V]; some repeat, some are none."""
    parents = np.full(num_nodes, -1, np.int32)
    tokens = np.zeros(num_nodes, np.int32)
    vocab = logits.shape[1]
    for n in range(1, num_nodes):
        parents[n] = draw.integers(max(0, n - 4), n)
        rank = min(int(draw.integers(0, 4)), vocab - 1)
        row = logits[parents[n]]
        tokens[n] = np.argpartition(-row, rank)[rank] if draw.random() < 0.9 else draw.integers(-1, vocab + 1)
    return AcceptTree(parents=parents, token_ids=tokens)


def sampled_chain(draw: np.random.Generator, logits: Array, num_nodes: int, num_candidates: int) -> AcceptTree:
    """A chain drawn from a q near p: a few best tokens of each row and some others."""
    vocab = logits.shape[1]
    count = min(num_candidates, vocab)
    ids = np.full((num_nodes, num_candidates), -1, np.int32)
    log_probs = np.full((num_nodes, num_candidates), -np.inf, np.float32)
    tokens = np.zeros(num_nodes, np.int32)
    for n in range(num_nodes):
        best = np.argsort(-logits[n], kind="stable")[: max(1, count // 2)]
        others = np.setdiff1d(draw.integers(0, vocab, count), best)[: count - len(best)]
        chosen = draw.permutation(np.concatenate([best, others]))
        finite = np.where(np.isfinite(logits[n, chosen]), logits[n, chosen], -20)
        scores = finite.astype(np.float64) + 0.7 * draw.standard_normal(len(chosen))
        q = np.exp(scores - scores.max())
        q /= q.sum()
        places = draw.permutation(num_candidates)[: len(chosen)]
        ids[n, places], log_probs[n, places] = chosen, np.log(q)
        if n + 1 < num_nodes:
            tokens[n + 1] = draw.choice(chosen, p=q)
    parents = np.arange(-1, num_nodes - 1, dtype=np.int32)
    return AcceptTree(parents=parents, token_ids=tokens, candidate_ids=ids, candidate_log_probs=log_probs)


RULES: tuple[tuple[Rule, float, float], ...] = (
    (Rule.EXACT, 0.0, 0.0),
    (Rule.MENTORED_BUDGET, 0.2, 0.0),
    (Rule.MENTORED_PRICE, 0.7, 0.0),
    (Rule.LENIENT, 0.6, 0.0),
    (Rule.TYPICAL, 0.2, 0.5),
    (Rule.TOP_DELTA, 0.2, 5.0),
    (Rule.THRESHOLD, 0.5, 0.6),
)
TRUNCATIONS: tuple[dict[str, Any], ...] = (
    {},
    {"top_k": 20},
    {"top_p": 0.9},
    {"min_p": 0.05},
    {"top_k": 50, "top_p": 0.95, "min_p": 0.02},
)


def random_case(
    seed: int,
    *,
    requests: int,
    nodes: int,
    vocab: int,
    logits_type: LogitsType,
    sampled: bool = False,
    num_candidates: int = 0,
    peak: float = 6.0,
    choices: Sequence[dict[str, Any]] | None = None,
) -> AcceptCase:
    """Requests that go through ``choices`` of parameters in turn (default: rules, truncations, modes of their own)."""
    draw = np.random.default_rng(seed)
    logits = random_logits(draw, (requests, nodes, vocab), logits_type, peak=peak)
    trees, params = [], []
    for b in range(requests):
        count = int(draw.integers(1, nodes + 1)) if b % 3 == 2 else nodes
        if sampled:
            trees.append(sampled_chain(draw, logits[b], count, num_candidates))
        else:
            trees.append(random_tree(draw, logits[b], count))
        given = dict(choices[b % len(choices)]) if choices is not None else _random_choice(draw, sampled=sampled)
        keys = {"seed": int(draw.integers(0, 2**64, dtype=np.uint64)), "position": int(draw.integers(0, 2**20))}
        params.append(params_of(**keys | given))
    return AcceptCase(logits=logits, logits_type=logits_type, trees=trees, params=params, num_candidates=num_candidates)


def _random_choice(draw: np.random.Generator, *, sampled: bool) -> dict[str, Any]:
    rule, first, second = RULES[int(draw.integers(len(RULES)))]
    return {
        "rule": rule,
        "first": first,
        "second": second,
        "temperature": float(draw.choice([0.0, 0.3, 0.7, 1.0, 1.4])),
        "shared_noise": bool(draw.integers(2)),
        "sampled": sampled,
        "kl_cap": float(draw.choice([np.inf, 0.3])),
        "kl_spent": 0.1,
        "recovery_limit": float(draw.choice([0.0, 0.3])),
        "recovery_state": int(draw.integers(0, 6)),
        **TRUNCATIONS[int(draw.integers(len(TRUNCATIONS)))],
    }


def relaxed(case: AcceptCase, seed: int) -> AcceptCase:
    """The case with a relaxation at each node."""
    draw = np.random.default_rng(seed)
    trees = [
        replace(tree, relaxation=draw.choice([0.0, 0.4, 1.0], len(tree.parents)).astype(np.float32))
        for tree in case.trees
    ]
    return replace(case, trees=trees)


def expect(case: AcceptCase) -> list[Accepted]:
    with np.errstate(all="ignore"):
        return [
            lossy_accept(case.logits[b, : len(tree.parents)], tree, params)
            for b, (tree, params) in enumerate(zip(case.trees, case.params, strict=True))
        ]


def check(case: AcceptCase, results: dict[str, Array], expected: Sequence[Accepted] | None = None) -> int:
    """How many requests differ from the reference at a tie; raises AssertionError where they differ elsewhere."""
    excused = 0
    for b, wanted in enumerate(expected if expected is not None else expect(case)):
        length = int(results["accepted_length"][b])
        path = results["accepted_nodes"][b].tolist()
        found = (tuple(path[:length]), int(results["bonus_token"][b]), int(results["recovery_state"][b]))
        flag = int(results["flags"][b])
        where = f"request {b}: {case.params[b]}, closest {wanted.closest:.3g}"
        assert path[length:] == [-1] * (len(path) - length), f"{where}: nodes {path} of length {length}"
        assert flag == wanted.broken, f"{where}: flag {flag}"
        if found != (wanted.nodes, wanted.bonus_token, wanted.recovery_state):
            assert wanted.closest < tie_of(case, b), (
                f"{where}: found {found}, expected {(wanted.nodes, wanted.bonus_token, wanted.recovery_state)}"
            )
            excused += 1
            continue
        for name, value in (("divergence", wanted.divergence), ("regret_nats", wanted.regret_nats)):
            number = float(results[name][b])
            assert abs(number - value) <= 3e-4 * abs(value) + 3e-5, f"{where}: {name} {number}, expected {value}"
    return excused


def tie_of(case: AcceptCase, b: int) -> float:
    """Scores in float32 are so far off."""
    finite = case.logits[b][np.isfinite(case.logits[b])]
    most = float(np.abs(finite).max(initial=0.0)) / max(case.params[b].temperature, 1e-4)
    return TIE + 3e-7 * (most if not case.params[b].is_greedy else 0.0)
