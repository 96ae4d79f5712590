"""How large drafts should be, and who drafts: what gives most tokens a millisecond.

A step of B rows and T tokens a row costs time(B, T) and gives row b one token and those of its draft that are accepted:
node i with the product of the chances from the root to it. Chances (by class, see ``evidence``) and times are measured
while serving. A draft's tokens are weighed against its time by the pace of late, the tokens a millisecond that all
steps give: what takes longer than the tokens that it brings would take otherwise does not pay. Where no size pays,
drafting is off, and tried again now and then; likewise the draft model (see ``model_value``) and its further levels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .cost_model import CostModel
from .draft_policy import RowOffer, StepReport
from .draft_tree import ROOT, DraftTree
from .evidence import GREEDY, NUM_CHANCE_CLASSES, PRIORS, SAMPLED, AcceptanceCounts, PaceCounts
from .level_value import ChildCounts, LevelCost, LevelOffer
from .model_value import DraftCost, Gain, ModelGain, spread_catch_up
from .tree_chances import order_nodes, rank_nodes, running_sums, sum_chain, sum_of

_SIZES = (1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15, 19, 23, 31, 47, 63)
_MIN_GAIN = 0.02  # tokens a row
_PROBE_FIRST, _PROBE_LAST = 16, 128
_PLAIN_INTERVAL = 64
_TRIAL_STEPS = 8  # with the draft model before anything is known of it
_SURE = 1.0  # tokens: where look-up promises more, the model is not tried out
_PACE_KEEP, _PACE_KEEP_ALL = 0.95, 0.998  # of a request, of all
_PACE_WEIGHT = 4.0  # steps: all requests' pace against a request's


@dataclass(slots=True)
class _Step:
    """What is known of the step that is under way. ``priors``: chances by class, of all requests. ``rates``: the rows'
    mean, empty until it is asked for. ``pace``: tokens a millisecond that its time is worth. ``offers``: of the rows
    for which the draft model runs."""

    histories: Sequence[AcceptanceCounts] = ()
    priors: Sequence[float] = PRIORS
    rates_by_row: Sequence[Sequence[float]] = ()
    rates: list[float] = field(default_factory=list)
    pace: float = 0.0
    offers: list[RowOffer] = field(default_factory=list)


@dataclass(slots=True)
class _Probe:
    """Says now and then that what does not pay is tried all the same, ever more rarely."""

    num_skipped: int = 0
    interval: int = _PROBE_FIRST

    def reset(self) -> None:
        """It pays."""
        self.num_skipped, self.interval = 0, _PROBE_FIRST

    def is_due(self) -> bool:
        """It does not pay; whether it is tried."""
        self.num_skipped += 1
        if self.num_skipped < self.interval:
            return False
        self.num_skipped = 0
        self.interval = min(2 * self.interval, _PROBE_LAST)
        return True


class AdaptiveDraftSize:
    """The policy of the module's text. One common limit a step, since a step costs what its longest row costs."""

    def __init__(self, cost: CostModel) -> None:
        self.cost = cost
        self._total = AcceptanceCounts()
        self._step = _Step()
        self._draft_probe = _Probe()
        self._model_probe = _Probe()
        self._level_probe = _Probe()
        self._num_drafted_steps = 0
        self._trial_left = _TRIAL_STEPS
        self._gain = ModelGain()
        self._draft_cost = DraftCost()
        self._level_cost = LevelCost()
        self._children = [ChildCounts(first, NUM_CHANCE_CLASSES) for first in (GREEDY, SAMPLED)]
        self._pace = PaceCounts()

    def begin_step(self, histories: Sequence[AcceptanceCounts]) -> None:
        priors = self._total.rates(PRIORS)
        self._step = _Step(histories, priors, [history.rates(priors) for history in histories])
        if histories:
            self._step.pace = self._find_pace()

    def pick_rows(self, offers: Sequence[RowOffer]) -> list[int]:
        picked = [offer for offer in offers if offer.is_fixed]
        others = [offer for offer in offers if not offer.is_fixed]
        if others and self.cost.knows_plain(len(self._step.histories)):
            picked += self._pick(others, len(picked))
        self._step.offers = picked
        return sorted(offer.row for offer in picked)

    def rates(self) -> list[float]:
        step = self._step
        if not step.rates:
            rows = step.rates_by_row
            step.rates = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
        return step.rates

    def pick_width(self, offer: LevelOffer) -> int:
        num_rows, rates = len(self._step.histories), self.rates()
        wider = self.cost.estimate(num_rows, 2 + offer.depth) - self.cost.estimate(num_rows, 1 + offer.depth)
        price = max(wider, 0.0) * self._step.pace / num_rows
        best, best_width, gain = 0.0, 0, 0.0
        for width in range(1, max(map(len, offer.nodes)) + 1):
            for chance, kind in (nodes[width - 1] for nodes in offer.nodes if len(nodes) >= width):
                gain += self._children_of(kind).expect_gain(chance, kind, rates, price)
            value = gain - self._level_cost.estimate(offer.num_rows * width) * self._step.pace
            if value > best:
                best, best_width = value, width
        if best_width:
            self._level_probe.reset()
        elif gain > 0.0 and self._level_probe.is_due():
            best_width = 1
        return best_width

    def observe_children(self, classes: Sequence[tuple[int, int]]) -> None:
        for parent, child in classes:
            self._children_of(parent).add(parent, child)

    def observe_level(self, num_nodes: int, ms: float) -> None:
        self._level_cost.observe(num_nodes, ms)

    def prune(self, drafts: Sequence[DraftTree]) -> list[DraftTree]:
        ranked = [rank_nodes(draft, rates) for draft, rates in zip(drafts, self._step.rates_by_row, strict=True)]
        longest = max(map(len, ranked)) if self.cost.knows_plain(len(drafts)) else 0
        limit = 0
        if longest:
            sums = [running_sums([chance for chance, _ in nodes]) for nodes in ranked]
            limit = self._find_limit(sums)
            self._weigh_model(sums, limit)
            limit = self._vary(limit)
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
        priors = self._step.priors
        for evidence, (judged, right) in counts.items():
            history.compare(evidence, judged, right, priors[evidence])
            history.add(evidence, judged, right)
            self._total.add(evidence, judged, right)

    def observe_step(self, step: StepReport) -> None:
        self.cost.observe(step.num_rows, step.num_queries, step.verify_ms)
        draft_ms = 0.0
        if self._step.offers:
            self._draft_cost.observe([offer.num_behind for offer in self._step.offers], step.draft_ms)
            draft_ms = min(step.draft_ms, 2 * self._draft_cost.usual(len(self._step.offers)))
        ms = draft_ms + self.cost.estimate(step.num_rows, step.num_queries)
        tokens, steps = step.num_tokens / step.num_rows, ms / self.cost.estimate(step.num_rows, 1)
        self._pace.add(tokens, steps, _PACE_KEEP_ALL)
        for history in self._step.histories:
            history.num_steps += 1
            history.pace.add(tokens, steps, _PACE_KEEP)

    def _children_of(self, kind: int) -> ChildCounts:
        return self._children[kind >= SAMPLED]

    def _find_pace(self) -> float:
        """Tokens a millisecond that the rows of this step had of late; never less than plain steps give."""
        usual = self._pace.mean(1.0, _PACE_WEIGHT)
        paces = [max(1.0, history.pace.mean(usual, _PACE_WEIGHT)) for history in self._step.histories]
        return sum(paces) / self.cost.estimate(len(paces), 1)

    def _pick(self, offers: Sequence[RowOffer], num_fixed: int) -> list[RowOffer]:
        """The rows for which the model pays, or one where it is on trial."""
        unsure = [offer for offer in offers if self._promise(offer) < _SURE]
        tried = [min(unsure, key=lambda offer: offer.num_behind)] if unsure else []
        if self._trial_left:
            self._trial_left -= len(tried)
            return tried
        best, count = 0.0, 0
        ranked = sorted(map(self._expect, offers), key=lambda item: -item[0])
        tokens, nodes, without = 0.0, 0.0, self._limit_without(offers)
        idle = self._cost_with(num_fixed, without, 0.0)
        for number, (gain, added, _) in enumerate(ranked, start=1):
            tokens, nodes = tokens + gain, max(nodes, added)
            value = tokens - self._step.pace * (self._cost_with(num_fixed + number, without, nodes) - idle)
            if value > best:
                best, count = value, number
        if count:
            self._model_probe.reset()
            return [offer for _, _, offer in ranked[:count]]
        return tried if tried and self._model_probe.is_due() else []

    def _promise(self, offer: RowOffer) -> float:
        """Tokens that look-up alone is expected to give the row."""
        return sum_chain(offer.looked_up, self._step.rates_by_row[offer.row])[-1]

    def _expect(self, offer: RowOffer) -> tuple[float, float, RowOffer]:
        """Tokens that the model is expected to add to a row's step, less its share of reading the row's prompt; nodes
        that it adds; the row."""
        history = self._step.histories[offer.row]
        late = spread_catch_up(self._draft_cost.catch_up(offer.num_behind), offer.num_behind, history.num_steps)
        gain = self._gain.expect(history.gains, _lookup_class(offer.looked_up))
        return gain.tokens - late * self._step.pace, gain.nodes, offer

    def _cost_with(self, num_model_rows: int, limit: int, nodes: float) -> float:
        """Milliseconds of a step with so many rows of the model's, and ``nodes`` beyond ``limit`` a row."""
        num_rows = len(self._step.histories)
        drafting = self._draft_cost.usual(num_model_rows) if num_model_rows else 0.0
        return drafting + self.cost.estimate(num_rows, 1 + limit + round(nodes))

    def _limit_without(self, offers: Sequence[RowOffer]) -> int:
        """The size that look-up alone would have in the rows offered."""
        rates = [self._step.rates_by_row[offer.row] for offer in offers]
        return self._find_limit([sum_chain(o.looked_up, r) for o, r in zip(offers, rates, strict=True)])

    def _weigh_model(self, sums: list[list[float]], limit: int) -> None:
        """Note what the model's guesses promise beyond what look-up alone would have."""
        alone = list(sums)
        for offer in self._step.offers:
            alone[offer.row] = sum_chain(offer.looked_up, self._step.rates_by_row[offer.row])
        without = self._find_limit(alone)
        for offer in self._step.offers:
            tokens = sum_of(sums[offer.row], limit) - sum_of(alone[offer.row], without)
            gain = Gain(tokens=tokens, nodes=max(0, limit - without))
            self._gain.add(self._step.histories[offer.row].gains, _lookup_class(offer.looked_up), gain)

    def _find_limit(self, sums: list[list[float]]) -> int:
        """The size that is worth most; ``sums``: of each row, the chances of its 0, 1, 2, ... best nodes."""
        num_rows, longest = len(self._step.histories), max(map(len, sums)) - 1
        if not longest:
            return 0
        pace = self._step.pace
        best, best_limit = _MIN_GAIN * num_rows - pace * self.cost.estimate(num_rows, 1), 0
        for limit in (*(size for size in _SIZES if size < longest), longest):
            value = sum(sum_of(row, limit) for row in sums) - pace * self.cost.estimate(num_rows, 1 + limit)
            if value > best:
                best, best_limit = value, limit
        return best_limit

    def _vary(self, limit: int) -> int:
        """``limit``, but now and then another one, since neither a plain step's time nor chances must be forgotten."""
        if limit:
            self._draft_probe.reset()
            self._num_drafted_steps += 1
            if self._num_drafted_steps > _PLAIN_INTERVAL:
                limit = 0
        elif self._draft_probe.is_due():
            limit = 1
        if not limit:
            self._num_drafted_steps = 0
        return limit


def _lookup_class(chain: DraftTree) -> int:
    """Of a looked-up chain's first guess, 0 where nothing was found."""
    return chain.evidence[0] if chain.token_ids else 0
