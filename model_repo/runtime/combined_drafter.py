"""Look-up and a draft model together: the model's tree with the looked-up branch in it, or look-up alone where the
model would only cost time (which the guide says)."""

from collections.abc import Sequence

from .draft_policy import DraftGuide, RowOffer
from .draft_tree import NO_DRAFT, ROOT, DraftTree
from .drafter import DraftQuery, NgramDrafter
from .model_drafter import ModelDrafter
from .sessions.base import FloatArray
from .tree_chances import find_chances


class CombinedDrafter:
    """See ``Drafter`` and ``FollowsTarget``. A request's ``method`` may ask for one of the two alone."""

    def __init__(self, model: ModelDrafter, guide: DraftGuide) -> None:
        self._model = model
        self._guide = guide
        self._lookup = NgramDrafter()
        self._num_read: dict[int, int] = {}  # by slot, tokens that the model has read

    def propose(self, queries: Sequence[DraftQuery]) -> list[DraftTree]:
        """See ``Drafter``."""
        looked_up = [NO_DRAFT if query.method == "model" else self._look_up(query) for query in queries]
        asked = self._guide.pick_rows(self._make_offers(queries, looked_up))
        drafts = list(looked_up)
        if asked:
            rates = self._guide.rates()
            for index, tree in zip(asked, self._model.propose([queries[i] for i in asked]), strict=True):
                drafts[index] = keep_best(join_branch(tree, looked_up[index]), queries[index].limit, rates)
                self._num_read[queries[index].slot] = len(queries[index].tokens)
        return drafts

    def observe(self, slot: int, position: int, features: FloatArray | None, count: int) -> None:
        """See ``FollowsTarget``."""
        if position == 0:
            self._num_read[slot] = 0
        self._model.observe(slot, position, features, count)

    def copy_slot(self, source: int, destination: int) -> None:
        """See ``FollowsTarget``."""
        self._num_read[destination] = self._num_read.get(source, 0)
        self._model.copy_slot(source, destination)

    def close(self) -> None:
        """See ``FollowsTarget``."""
        self._model.close()

    def _look_up(self, query: DraftQuery) -> DraftTree:
        return self._lookup.look_up(query.tokens, min(query.limit, query.depth))

    def _make_offers(self, queries: Sequence[DraftQuery], looked_up: Sequence[DraftTree]) -> list[RowOffer]:
        """The rows for which the draft model may run."""
        return [
            RowOffer(
                row=row,
                looked_up=chain,
                num_behind=len(query.tokens) - self._num_read.get(query.slot, 0),
                is_fixed=query.method == "model",
            )
            for row, (query, chain) in enumerate(zip(queries, looked_up, strict=True))
            if query.limit > 0 and query.depth > 0 and query.method != "ngram"
        ]


def join_branch(tree: DraftTree, chain: DraftTree) -> DraftTree:
    """``tree`` with ``chain`` as a branch of it; a node that both guess has the evidence of the tree."""
    if not chain.token_ids:
        return tree
    token_ids, parents, evidence = list(tree.token_ids), list(tree.parents), list(tree.evidence)
    at, is_new = ROOT, False
    for token, kind in zip(chain.token_ids, chain.evidence, strict=True):
        child = ROOT if is_new else tree.find_child(at, token)
        if child == ROOT:
            is_new = True
            token_ids.append(token)
            parents.append(at)
            evidence.append(kind)
            child = len(token_ids) - 1
        at = child
    return DraftTree(token_ids=token_ids, parents=parents, evidence=evidence)


def keep_best(tree: DraftTree, limit: int, rates: Sequence[float]) -> DraftTree:
    """The ``limit`` likeliest nodes; ``rates``: chance of acceptance by class."""
    if len(tree) <= limit:
        return tree
    chances = find_chances(tree, rates)
    order = sorted(range(len(tree)), key=lambda node: -chances[node])
    return tree.keep(sorted(order[:limit]))
