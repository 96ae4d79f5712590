"""Chances of a draft tree's nodes: of each, of the best so many together, and the order that nodes are scored in."""

from collections.abc import Sequence

from .draft_tree import ROOT, DraftTree


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


def rank_nodes(draft: DraftTree, rates: Sequence[float]) -> list[tuple[float, int]]:
    """(chance, node), best first; a parent comes before its children."""
    chances = find_chances(draft, rates)
    order = sorted(range(len(chances)), key=lambda node: -chances[node])
    return [(chances[node], node) for node in order]


def running_sums(values: Sequence[float]) -> list[float]:
    """[0, v0, v0 + v1, ...]."""
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    return sums


def sum_of(sums: Sequence[float], count: int) -> float:
    """Of the ``count`` best nodes, or all where there are fewer."""
    return sums[min(count, len(sums) - 1)]


def sum_chain(chain: DraftTree, rates: Sequence[float]) -> list[float]:
    """Running sums of a chain's chances."""
    return running_sums(find_chances(chain, rates))
