"""What a draft plan refuses before anything is written."""

from dataclasses import replace

import numpy as np
import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.draft.plan import DraftPlan
from draftsmith.builder.errors import UsageError

from tests.tiny_drafts import make_draft, make_ranking


@pytest.fixture
def spec(tiny_checkpoint):
    with open_checkpoint(tiny_checkpoint("llama")) as target:
        return target.spec


def check(spec, head, ranking):
    DraftPlan(draft=make_draft(spec), head=head, ranking=ranking, name="tiny").check()


def test_a_ranking_of_groups_needs_exact_logits(spec):
    ranking = make_ranking(spec, rank=6, num_candidates=32, group_size=8, is_exact=False)
    with pytest.raises(UsageError, match="exact logits behind a ranking of groups, found scores alone"):
        check(spec, "grouped", ranking)


def test_a_ranking_of_another_size_is_refused(spec):
    ranking = make_ranking(spec, rank=6, num_candidates=32)
    check(spec, "speculative", ranking)
    for wrong in (
        replace(ranking, vocabulary=np.concatenate([ranking.vocabulary] * 2)),
        replace(ranking, down=ranking.down[:, :-2]),
    ):
        with pytest.raises(UsageError, match="draft ranking: expected matrices"):
            check(spec, "speculative", wrong)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([5, 9, 5], "each target id once, found 5 at rows 0 and 2"),
        ([0, 305, 3], "target ids from 0 to 304, found 305 at row 1"),
        ([0, -1, 3], "target ids from 0 to 304, found -1 at row 1"),
        ([], r"1 to 305 token ids, whole numbers in a row, found int32 \[0\]"),
        ([[1, 2]], r"found int32 \[1, 2\]"),
        (range(306), r"found int32 \[306\]"),
    ],
)
def test_a_subset_has_each_token_of_the_vocabulary_once_at_most(spec, ids, words):
    plan = DraftPlan(draft=make_draft(spec), head="subset", target_ids=np.array(ids, np.int32), name="tiny")
    with pytest.raises(UsageError, match=f"draft subset: expected .*{words}"):
        plan.check()


def test_a_subset_that_no_head_reads_is_refused(spec):
    ids = np.array([3, 1, 2], np.int32)
    DraftPlan(draft=make_draft(spec), head="subset", target_ids=ids, name="tiny").check()
    with pytest.raises(UsageError, match="draft subset: expected the head subset beside it, found full"):
        DraftPlan(draft=make_draft(spec), head="full", target_ids=ids, name="tiny").check()
    with pytest.raises(UsageError, match=r"expected 1 to 305 token ids, .* found float32"):
        DraftPlan(draft=make_draft(spec), head="subset", target_ids=ids.astype(np.float32), name="tiny").check()


@pytest.mark.parametrize(("token", "words"), [(305, "found 305 at row"), (7, "each target id once, found 7 at rows")])
def test_groups_have_each_token_once_at_most(spec, token, words):
    ranking = make_ranking(spec, rank=6, num_candidates=32, group_size=8)
    groups = ranking.groups.copy()
    groups.ravel()[np.flatnonzero(groups != 7)[0]] = token
    with pytest.raises(UsageError, match=f"draft ranking's groups: .*{words}"):
        check(spec, "grouped", replace(ranking, groups=groups))


def test_a_head_and_its_ranking_go_together(spec):
    with pytest.raises(UsageError, match="expected one for the head speculative, found another"):
        check(spec, "speculative", make_ranking(spec, rank=6, num_candidates=32, group_size=8))
