"""How large drafts should be: the size that gives most tokens a millisecond.

A step of B rows and T tokens a row costs time(B, T) and gives row b one token and those of its draft that are accepted:
node i with the product of the chances from the root to it. Chances (by class, see ``evidence``) and times are measured
while serving. Where no size pays, drafting is off, and tried again now and then.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .cost_model import CostModel
from .draft_tree import ROOT, DraftTree
from .evidence import PRIORS, AcceptanceCounts

_SIZES = (1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15, 19, 23, 31, 47, 63)
_MIN_GAIN = 1.02
_PROBE_FIRST, _PROBE_LAST = 16, 128
_PLAIN_INTERVAL = 64
_TRIAL_STEPS = 8  # with the draft model on before it is judged, and in a probe
_MODEL_KEEP = 0.95
_BEST_CHILD = 0.6  # chance of a node's best child before anything is known of it


class DraftGuide(Protocol):
    """What a draft model's loop asks while it drafts."""

    def wants_model(self, num_rows: int) -> bool:
        """Whether the draft model should run for a step of so many rows."""

    def rates(self) -> list[float]:
        """Chance of acceptance by class of guesses."""

    def goes_deeper(self, num_rows: int, chance: float, num_nodes: int) -> bool:
        """Whether one more level pays. ``chance``: summed over rows, that any node of the newest level is accepted;
        ``num_nodes``: of a row's tree so far."""

    def expected_model_tokens(self, num_rows: int) -> float:
        """Accepted tokens a row that the draft model gave lately."""

    def observe_level(self, num_rows: int, ms: float) -> None:
        """A step of the draft model took ``ms``."""


class DraftPolicy(DraftGuide, Protocol):
    """Says how much of each draft is scored, and learns from what came of it."""

    def prune(self, drafts: Sequence[DraftTree], histories: Sequence[AcceptanceCounts]) -> list[DraftTree]:
        """Each row's draft with the nodes that are to be scored."""

    def learn(self, history: AcceptanceCounts, draft: DraftTree, path: Sequence[int]) -> None:
        """A row's draft was scored and the nodes of ``path`` were accepted."""

    def observe_step(self, step: "StepReport") -> None:
        """A decode step is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One decode step: B rows, T tokens a row, tokens that all rows got together, milliseconds of drafting and of the
    rest. ``used_model``: the draft model ran."""

    num_rows: int
    num_queries: int
    num_tokens: int
    draft_ms: float
    verify_ms: float
    used_model: bool


class FixedDraftSize:
    """Always scores drafts of up to one size, the first nodes: for tests and measurements."""

    def __init__(self, size: int) -> None:
        self._size = size

    def wants_model(self, num_rows: int) -> bool:
        del num_rows
        return self._size > 0

    def rates(self) -> list[float]:
        return list(PRIORS)

    def goes_deeper(self, num_rows: int, chance: float, num_nodes: int) -> bool:
        del num_rows, chance, num_nodes
        return True

    def expected_model_tokens(self, num_rows: int) -> float:
        del num_rows
        return float("inf")

    def observe_level(self, num_rows: int, ms: float) -> None:
        """Nothing to learn."""

    def prune(self, drafts: Sequence[DraftTree], histories: Sequence[AcceptanceCounts]) -> list[DraftTree]:
        del histories
        return [draft.keep(range(min(self._size, len(draft)))) for draft in drafts]

    def learn(self, history: AcceptanceCounts, draft: DraftTree, path: Sequence[int]) -> None:
        """Nothing to learn."""

    def observe_step(self, step: StepReport) -> None:
        """Nothing to learn."""


class AdaptiveDraftSize:
    """The policy of the module's text. One common limit a step, since a step costs what its longest row costs."""

    def __init__(self, cost: CostModel) -> None:
        self.cost = cost
        self._total = AcceptanceCounts()
        self._num_skipped = 0
        self._probe_interval = _PROBE_FIRST
        self._num_drafted_steps = 0
        self._models: dict[int, _ModelGain] = {}
        self._level_ms: dict[int, float] = {}

    def wants_model(self, num_rows: int) -> bool:
        if not self.cost.knows_plain(num_rows):
            return False
        return self._model(num_rows).wants(num_rows / self.cost.estimate(num_rows, 1))

    def rates(self) -> list[float]:
        return self._total.rates(PRIORS)

    def goes_deeper(self, num_rows: int, chance: float, num_nodes: int) -> bool:
        nodes = max(num_nodes, 1)
        wider = self.cost.estimate(num_rows, 2 + nodes) - self.cost.estimate(num_rows, 1 + nodes)
        cost = self._level_ms.get(num_rows, 0.0) + max(wider, 0.0)
        speed = self._model(num_rows).speed or num_rows / self.cost.estimate(num_rows, 1)
        return chance * _BEST_CHILD > cost * speed

    def expected_model_tokens(self, num_rows: int) -> float:
        model = self._model(num_rows)
        return model.tokens / max(model.rows, 1e-9) - 1.0 if model.rows else 1.0

    def observe_level(self, num_rows: int, ms: float) -> None:
        old = self._level_ms.get(num_rows, ms)
        self._level_ms[num_rows] = old + 0.2 * (min(ms, 2 * old) - old)

    def prune(self, drafts: Sequence[DraftTree], histories: Sequence[AcceptanceCounts]) -> list[DraftTree]:
        priors = self.rates()
        ranked = [_rank(draft, history.rates(priors)) for draft, history in zip(drafts, histories, strict=True)]
        longest = max(map(len, ranked)) if self.cost.knows_plain(len(drafts)) else 0
        limit = self._find_limit([[chance for chance, _ in nodes] for nodes in ranked], longest) if longest else 0
        if limit:
            self._num_skipped, self._probe_interval = 0, _PROBE_FIRST
            self._num_drafted_steps += 1
            if self._num_drafted_steps > _PLAIN_INTERVAL:  # what a plain step costs must not be forgotten either
                limit = 0
        elif longest:
            limit = self._probe()
        if not limit:
            self._num_drafted_steps = 0
        return [
            draft.keep(order_nodes(draft, [node for _, node in nodes[:limit]]))
            for draft, nodes in zip(drafts, ranked, strict=True)
        ]

    def learn(self, history: AcceptanceCounts, draft: DraftTree, path: Sequence[int]) -> None:
        accepted = set(path)
        counts: dict[int, tuple[int, int]] = {}
        for node, parent in enumerate(draft.parents):
            if parent == ROOT or parent in accepted:
                judged, right = counts.get(draft.evidence[node], (0, 0))
                counts[draft.evidence[node]] = (judged + 1, right + (node in accepted))
        for evidence, (judged, right) in counts.items():
            history.add(evidence, judged, right)
            self._total.add(evidence, judged, right)

    def observe_step(self, step: StepReport) -> None:
        self.cost.observe(step.num_rows, step.num_queries, step.verify_ms)
        if step.used_model:
            self._model(step.num_rows).add(step)

    def _model(self, num_rows: int) -> "_ModelGain":
        return self._models.setdefault(num_rows, _ModelGain())

    def _find_limit(self, chances: list[list[float]], longest: int) -> int:
        """The size of most tokens a millisecond; ``chances``: of each row's nodes, best first."""
        num_rows = len(chances)
        sums = [_running_sums(row) for row in chances]
        best, best_limit = num_rows / self.cost.estimate(num_rows, 1) * _MIN_GAIN, 0
        for limit in (*(size for size in _SIZES if size < longest), longest):
            tokens = num_rows + sum(row[min(limit, len(row) - 1)] for row in sums)
            speed = tokens / self.cost.estimate(num_rows, 1 + limit)
            if speed > best:
                best, best_limit = speed, limit
        return best_limit

    def _probe(self) -> int:
        """1 now and then while drafting does not pay, ever more rarely: what is learned may turn it on again."""
        self._num_skipped += 1
        if self._num_skipped < self._probe_interval:
            return 0
        self._num_skipped = 0
        self._probe_interval = min(2 * self._probe_interval, _PROBE_LAST)
        return 1


@dataclass(slots=True)
class _ModelGain:
    """What steps with the draft model gave, decayed, for one number of rows."""

    tokens: float = 0.0
    rows: float = 0.0
    ms: float = 0.0
    num_steps: int = 0
    num_skipped: int = 0
    trial_left: int = _TRIAL_STEPS
    interval: int = _PROBE_FIRST

    @property
    def speed(self) -> float:
        """Tokens a millisecond, 0 before anything was seen."""
        return self.tokens / self.ms if self.ms else 0.0

    def add(self, step: StepReport) -> None:
        """A step with the model is over. The first of a kind is not counted: it sets things up."""
        self.num_steps += 1
        if self.num_steps == 1:
            return
        self.tokens = self.tokens * _MODEL_KEEP + step.num_tokens
        self.rows = self.rows * _MODEL_KEEP + step.num_rows
        self.ms = self.ms * _MODEL_KEEP + step.draft_ms + step.verify_ms

    def wants(self, plain_speed: float) -> bool:
        """Whether the model should run: it is on trial, or it beats plain steps."""
        if self.trial_left:
            self.trial_left -= 1
            return True
        if self.speed >= plain_speed:
            self.interval = _PROBE_FIRST
            return True
        self.num_skipped += 1
        if self.num_skipped < self.interval:
            return False
        self.num_skipped, self.interval = 0, min(2 * self.interval, _PROBE_LAST)
        self.trial_left = _TRIAL_STEPS - 1
        return True


def find_chances(draft: DraftTree, rates: Sequence[float]) -> list[float]:
    """Of each node, the chance that it and all its ancestors are accepted; ``rates``: by class."""
    chances: list[float] = []
    for parent, evidence in zip(draft.parents, draft.evidence, strict=True):
        chances.append(rates[evidence] * (1.0 if parent == ROOT else chances[parent]))
    return chances


def order_nodes(draft: DraftTree, nodes: Sequence[int]) -> list[int]:
    """``nodes`` (best first, parents included) with the likeliest branch first, then the others, parents first.

    The cache of a likely branch is then in its place already when it is accepted.
    """
    branch: list[int] = []
    at = ROOT
    for node in nodes:
        if draft.parents[node] == at:
            branch.append(node)
            at = node
    taken = set(branch)
    return branch + sorted(node for node in nodes if node not in taken)


def _rank(draft: DraftTree, rates: Sequence[float]) -> list[tuple[float, int]]:
    """(chance, node), best first; a parent comes before its children."""
    chances = find_chances(draft, rates)
    order = sorted(range(len(chances)), key=lambda node: -chances[node])
    return [(chances[node], node) for node in order]


def _running_sums(values: Sequence[float]) -> list[float]:
    """[0, v0, v0 + v1, ...]."""
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    return sums
