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


def test_a_head_and_its_ranking_go_together(spec):
    with pytest.raises(UsageError, match="expected one for the head speculative, found another"):
        check(spec, "speculative", make_ranking(spec, rank=6, num_candidates=32, group_size=8))
