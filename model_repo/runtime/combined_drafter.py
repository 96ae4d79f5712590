"""Look-up and a draft model together: the model's tree with the looked-up branch in it, or look-up alone where it is
so sure that the model would only cost time."""

from collections.abc import Sequence

from .adaptive import DraftGuide
from .draft_tree import NO_DRAFT, ROOT, DraftTree
from .drafter import DraftQuery, NgramDrafter
from .model_drafter import ModelDrafter
from .sessions.base import FloatArray

_LOOKUP_MARGIN = 1.0
"""Look-up must promise this many tokens more than the model gave lately."""


class CombinedDrafter:
    """See ``Drafter`` and ``FollowsTarget``. A request's ``method`` may ask for one of the two alone."""

    def __init__(self, model: ModelDrafter, guide: DraftGuide) -> None:
        self._model = model
        self._guide = guide
        self._lookup = NgramDrafter()
        self.used_model = False

    def propose(self, queries: Sequence[DraftQuery]) -> list[DraftTree]:
        """See ``Drafter``."""
        looked_up = [NO_DRAFT if query.method == "model" else self._look_up(query) for query in queries]
        asked = self._pick_rows(queries, looked_up)
        self.used_model = bool(asked)
        drafts = list(looked_up)
        if asked:
            for index, tree in zip(asked, self._model.propose([queries[i] for i in asked]), strict=True):
                drafts[index] = join_branch(tree, looked_up[index], queries[index].limit)
        return drafts

    def observe(self, slot: int, position: int, features: FloatArray | None, count: int) -> None:
        """See ``FollowsTarget``."""
        self._model.observe(slot, position, features, count)

    def copy_slot(self, source: int, destination: int) -> None:
        """See ``FollowsTarget``."""
        self._model.copy_slot(source, destination)

    def close(self) -> None:
        """See ``FollowsTarget``."""
        self._model.close()

    def _look_up(self, query: DraftQuery) -> DraftTree:
        return self._lookup.look_up(query.tokens, min(query.limit, query.depth))

    def _pick_rows(self, queries: Sequence[DraftQuery], looked_up: Sequence[DraftTree]) -> list[int]:
        """Rows for which the draft model runs."""
        rows = [i for i, query in enumerate(queries) if query.limit > 0 and query.method != "ngram"]
        if not rows:
            return []
        only_model = [i for i in rows if queries[i].method == "model"]
        if not only_model and not self._guide.wants_model(len(queries)):
            return []
        rates, usual = self._guide.rates(), self._guide.expected_model_tokens(len(queries))
        return [i for i in rows if i in only_model or _promise(looked_up[i], rates) < usual + _LOOKUP_MARGIN]


def _promise(chain: DraftTree, rates: Sequence[float]) -> float:
    """Tokens that are expected to be accepted of a chain of one class."""
    if not chain.token_ids:
        return 0.0
    rate = rates[chain.evidence[0]]
    return float(sum(rate**depth for depth in range(1, len(chain) + 1)))


def join_branch(tree: DraftTree, chain: DraftTree, limit: int) -> DraftTree:
    """``tree`` with ``chain`` as a branch of it, up to ``limit`` nodes; a node that both guess has the better evidence
    of the tree."""
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
    return DraftTree(token_ids=token_ids[:limit], parents=parents[:limit], evidence=evidence[:limit])
