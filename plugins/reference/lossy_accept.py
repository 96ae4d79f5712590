"""What ``LossyAccept`` computes for one request, in float64: the specification, and the oracle of the kernel's tests.

A walk from node 0, the last committed token: the logits of node n score the token after n. Of equal siblings the first
counts; a child that is no token of the vocabulary is none. Random numbers are those of the position that is decided:
its token noise, one coin u (stream COIN) and one uniform for what follows a rejection (stream RESIDUAL).

A draw from p is y = argmax log p + noise where noise is shared. Else u decides: it meets the children's probabilities
first, in their order, and the rest of (u - P) / (1 - P) picks among the other tokens by their cumulative sum. P is the
children's mass. A relaxed rule reads the same u (with shared noise: u = P + coin (1 - P) where y is no child, and a
child y is kept), so what the exact rule accepts, it accepts.

Rules that spend more than what is left of the cap do not run: budgets shrink, the others give way to ``exact``. The
``relaxation`` r of a node scales D, c, log alpha, and delta of ``top_delta`` to r times, and the thresholds' distance
from 1; at r = 0 every rule is exact; ``typical`` has no neutral setting, and runs for any r > 0.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .accept_chosen import step_chosen, step_greedy
from .accept_noise import position_key
from .accept_sampled import Draft, step_sampled
from .accept_step import Rule, Strength
from .accept_target import Comparisons, Float32Array, Target, find_target, is_broken

Int32Array = npt.NDArray[np.int32]
_GREEDY = 1e-4
_RUN = 3  # tokens in a row that begin recovery, and that end it


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptTree:
    """A draft: ``parents`` and ``token_ids`` int32 [N], parents below their nodes, -1 at node 0.

    ``candidate_ids`` int32 [N, C] (-1: none) and ``candidate_log_probs`` float32 [N, C] are q after each node, for a
    sampled draft; ``relaxation`` float32 [N] in [0, 1], None for 1 everywhere.
    """

    parents: Int32Array
    token_ids: Int32Array
    candidate_ids: Int32Array | None = None
    candidate_log_probs: Float32Array | None = None
    relaxation: Float32Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptParams:
    """A request's parameters, as ``lossy_accept.h`` names them; ``position`` is the index of the token after node 0."""

    rule: Rule = Rule.EXACT
    first: float = 0.0
    second: float = 0.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    position: int = 0
    shared_noise: bool = True
    sampled: bool = False
    kl_cap: float = math.inf
    kl_spent: float = 0.0
    recovery_limit: float = 0.0
    recovery_state: int = 0

    @property
    def is_greedy(self) -> bool:
        """True where p is one-hot: ``top_delta`` is a rule for this case alone."""
        return self.temperature < _GREEDY or self.top_k == 1 or self.rule == Rule.TOP_DELTA


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The path below node 0 and the token after it; -1 and ``broken`` where a visited row of logits was not finite.

    ``divergence``: nats that were spent. ``closest``: the smallest distance of a comparison to its tie, in probability,
    as a share of what is compared, or in nats of a noisy score.
    """

    nodes: tuple[int, ...]
    bonus_token: int
    divergence: float
    regret_nats: float
    recovery_state: int
    broken: bool
    closest: float


def lossy_accept(logits: Float32Array, tree: AcceptTree, params: AcceptParams) -> Accepted:
    """Walk a draft against the target's ``logits`` float32 [N, V] (after penalties)."""
    comparisons = Comparisons()
    node, spent, regret, state = 0, 0.0, 0.0, params.recovery_state
    nodes: list[int] = []
    while True:
        if is_broken(logits[node]):
            return Accepted(
                nodes=(),
                bonus_token=-1,
                divergence=0.0,
                regret_nats=0.0,
                recovery_state=params.recovery_state,
                broken=True,
                closest=comparisons.closest,
            )
        target = _find_target(logits[node], params, comparisons)
        children = _find_children(tree, node, logits.shape[1])
        strength = _find_strength(tree, params, node, params.kl_cap - params.kl_spent - spent, state)
        key = position_key(params.seed, params.position + len(nodes))
        if params.is_greedy:
            step = step_greedy(target, list(children), strength)
        elif params.sampled and children and params.rule != Rule.THRESHOLD:  # that one takes children as given
            draft = _find_draft(tree, node, logits.shape[1])
            step = step_sampled(target, next(iter(children)), draft, strength, key=key)
        else:
            step = step_chosen(target, list(children), strength, key=key, shared=params.shared_noise)
        spent, regret = spent + step.spent, regret + step.regret
        if params.recovery_limit > 0:
            low = comparisons.less(float(target.p[step.token]), params.recovery_limit, params.recovery_limit)
            state = advance_recovery(state, low)
        if step.child is None:
            return Accepted(
                nodes=tuple(nodes),
                bonus_token=step.token,
                divergence=spent,
                regret_nats=regret,
                recovery_state=state,
                broken=False,
                closest=comparisons.closest,
            )
        node = children[step.token]
        nodes.append(node)


def advance_recovery(state: int, low: bool) -> int:
    """The state after a token of ``low`` probability or of another.

    Below 3 so many low ones came in a row; from 3 on ``exact`` holds, and 3 + so many high ones came in a row.
    """
    if state < _RUN:
        return state + 1 if low else 0
    return _RUN if low else (state + 1) % (2 * _RUN)


def _find_target(logits: Float32Array, params: AcceptParams, comparisons: Comparisons) -> Target:
    if params.is_greedy:
        return find_target(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, comparisons=comparisons)
    return find_target(
        logits,
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        comparisons=comparisons,
    )


def _find_children(tree: AcceptTree, node: int, num_vocab: int) -> dict[int, int]:
    """Node of each child's token, in the nodes' order."""
    children: dict[int, int] = {}
    for child in np.flatnonzero(tree.parents == node).tolist():
        token = int(tree.token_ids[child])
        if 0 <= token < num_vocab:
            children.setdefault(token, child)
    return children


def _find_strength(tree: AcceptTree, params: AcceptParams, node: int, left: float, state: int) -> Strength:
    factor = 1.0 if tree.relaxation is None else float(tree.relaxation[node])
    in_recovery = params.recovery_limit > 0 and state >= _RUN
    strength = Strength(rule=params.rule, first=params.first, second=params.second, left=left)
    return strength.relaxed(0.0 if in_recovery else factor)


def _find_draft(tree: AcceptTree, node: int, num_vocab: int) -> Draft:
    if tree.candidate_ids is None or tree.candidate_log_probs is None:
        raise ValueError("candidate_ids: expected q of a sampled draft, found None")
    ids = tree.candidate_ids[node]
    kept = (ids >= 0) & (ids < num_vocab)
    return Draft(ids=ids[kept].astype(np.int64), q=np.exp(tree.candidate_log_probs[node][kept].astype(np.float64)))
