import numpy as np
import pytest
from draftsmith.model_repo.runtime.draft_tree import DraftTree
from draftsmith.model_repo.runtime.drafter import DraftQuery, NgramDrafter
from hypothesis import given
from hypothesis import strategies as st


def propose(tokens, limit, drafter=None):
    (draft,) = (drafter or NgramDrafter()).propose(
        [DraftQuery(slot=0, tokens=np.array(tokens, np.int32), limit=limit, depth=limit)]
    )
    return draft


@pytest.mark.parametrize(
    ("tokens", "limit", "expected", "evidence"),
    [
        ([1, 2, 3, 9, 1, 2], 3, [3, 9, 1], 2),
        ([1, 2, 3, 2, 4, 1, 2], 2, [3, 2], 2),  # the longer match wins over the later one
        ([2, 3, 2, 4, 2], 1, [4], 1),  # the later one of equal length
        ([7, 7], 3, [7, 7, 7], 1),  # a period is continued
        ([1, 2, 1, 2, 1], 5, [2, 1, 2, 1, 2], 3),
        ([1, 2, 3], 3, [], 0),
        ([1], 3, [], 0),
        ([1, 1, 1], 0, [], 0),
    ],
)
def test_drafts_what_followed_the_longest_earlier_match(tokens, limit, expected, evidence):
    draft = propose(tokens, limit)
    assert (draft.token_ids, set(draft.evidence)) == (expected, {evidence} if expected else set())


def find_by_brute_force(tokens, limit, most):
    for length in range(min(most, len(tokens) - 1), 0, -1):
        ends = [e for e in range(length, len(tokens)) if tokens[e - length : e] == tokens[-length:]]
        if ends:
            whole = list(tokens)
            for offset in range(limit):
                whole.append(whole[ends[-1] + offset])
            return whole[len(tokens) :], length
    return [], 0


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 12))
def test_the_look_up_equals_a_plain_search(tokens, limit):
    draft = propose(tokens, limit)
    expected, length = find_by_brute_force(tokens, limit, 5)
    assert (draft.token_ids, draft.evidence) == (expected, [length] * len(expected))


def test_weak_matches_can_be_left_out():
    assert propose([1, 2, 3, 1], 2, NgramDrafter(min_match=2)).token_ids == []


def test_a_draft_can_be_cut():
    draft = DraftTree.chain([1, 2, 3], evidence=2)
    assert draft.keep([0, 1]) == DraftTree.chain([1, 2], evidence=2)
    assert draft.keep([0, 1, 2]) is draft
