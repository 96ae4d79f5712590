"""Trees of a draft model: the text stays plain decoding's, and the draft's cache follows the target entry by entry."""

import numpy as np
import pytest
from draftsmith.model_repo.runtime.adaptive import AdaptiveDraftSize
from draftsmith.model_repo.runtime.combined_drafter import CombinedDrafter, join_branch, keep_best
from draftsmith.model_repo.runtime.cost_model import CostModel
from draftsmith.model_repo.runtime.draft_policy import FixedDraftSize
from draftsmith.model_repo.runtime.draft_tree import ROOT, DraftTree
from draftsmith.model_repo.runtime.model_drafter import ModelDrafter

from tests.model_repo.decoding import decode, make_engine, make_request, run, submit
from tests.model_repo.runtime.test_speculation import PROMPTS, SETTINGS, assert_drafts_mattered, decode_plain
from tests.model_repo.toy_draft import ToyDraftSession
from tests.model_repo.toy_session import ToyModel, ToySession


def open_drafting(model=None, *, policy=None, window=0, disturbance=1.0, combined=False, session=None, **config):
    """An engine over the toy target with the toy draft; its sessions are ``engine.toys``."""
    session = session or ToySession(model or ToyModel(), num_slots=5, capacity=400, has_features=True)
    draft = ToyDraftSession(session, window=window, disturbance=disturbance)
    policy = policy or FixedDraftSize(15)
    drafter = ModelDrafter(draft, policy)
    if combined:
        drafter = CombinedDrafter(drafter, policy)
    engine = make_engine(session, drafter=drafter, policy=policy, **config)
    engine.toys = session, draft
    return engine


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: "-".join(s) or "greedy")
def test_text_with_trees_is_plain_text(setting, width):
    model = ToyModel(drift=1.0)
    answers = []
    engine = open_drafting(model)
    for prompt in PROMPTS:
        request = make_request(prompt, max_tokens=60, draft_width=width, draft_depth=4, **setting)
        plain = decode_plain(request, session=ToySession(model))
        answers.append(run(engine, submit(engine, request)))
        assert answers[-1].facts() == plain.facts()
    assert_drafts_mattered(*answers)


def test_side_branches_are_accepted_and_moved_into_place():
    engine = open_drafting(disturbance=2.0)
    answer = run(engine, submit(engine, make_request(max_tokens=150, end_ids=(), draft_width=4, draft_depth=4)))
    session, _ = engine.toys
    assert session.num_paths > 3
    assert answer.last.num_accepted_draft_tokens > 20


@pytest.mark.parametrize("width", [1, 3])
def test_a_ragged_batch_equals_solo_runs(width):
    requests = [
        make_request(PROMPTS[0], max_tokens=60, end_ids=(), draft_width=width),
        make_request(PROMPTS[1], max_tokens=5, end_ids=(), draft_width=4, draft_depth=2),
        make_request(PROMPTS[2], max_tokens=50, temperature=0.8, seed=7, draft_width=width),
        make_request(PROMPTS[3], max_tokens=50, speculate=False, end_ids=()),
        make_request(PROMPTS[4], max_tokens=50, repetition_penalty=1.1, end_ids=(), draft_width=1),
    ]
    alone = [decode_plain(request) for request in requests]
    engine = open_drafting()
    together = run(engine, *[submit(engine, request) for request in requests])
    assert [a.facts() for a in together] == [a.facts() for a in alone]
    assert together[3].last.num_draft_tokens == 0
    assert_drafts_mattered(*together)


def test_requests_that_come_and_go_move_slots_and_keep_both_caches():
    engine = open_drafting(session=ToySession(num_slots=3, capacity=400, has_features=True))
    requests = [make_request(PROMPTS[i % 5], max_tokens=10 + 13 * (i % 4), end_ids=()) for i in range(9)]
    answers = run(engine, *[submit(engine, request) for request in requests])
    assert engine.toys[0].num_copies > 0
    for request, answer in zip(requests, answers, strict=True):
        assert answer.facts() == decode_plain(request).facts()


def test_a_window_leaves_old_entries_unread_and_the_text_as_it_is():
    prompt = tuple(range(240, 256)) * 8
    request = make_request(prompt, max_tokens=60, end_ids=())
    engine = open_drafting(window=20)
    answer = run(engine, submit(engine, request))
    assert answer.facts() == decode_plain(request).facts()
    _, draft = engine.toys
    first = draft.tokens[0] != -1
    assert not first[: len(prompt) - 25].any()  # the prompt's start was never drafted over
    assert_drafts_mattered(answer)


def test_the_draft_catches_up_after_steps_without_it():
    class Sometimes(FixedDraftSize):
        turn = 0

        def pick_rows(self, offers):
            self.turn += 1
            return super().pick_rows(offers) if self.turn % 5 == 0 else []

    engine = open_drafting(policy=Sometimes(15), combined=True)
    request = make_request(PROMPTS[1], max_tokens=80, end_ids=(), temperature=1.0, seed=3)
    answer = run(engine, submit(engine, request))
    assert answer.facts() == decode_plain(request).facts()
    assert any(queries > 1 and is_first for _, queries, is_first in engine.toys[1].steps)


@pytest.mark.parametrize("method", ["auto", "model", "ngram"])
def test_a_request_says_who_drafts(method):
    engine = open_drafting(combined=True)
    request = make_request(PROMPTS[3], max_tokens=50, end_ids=(), draft_method=method)
    answer = run(engine, submit(engine, request))
    assert answer.facts() == decode_plain(request).facts()
    assert bool(engine.toys[1].steps) == (method != "ngram")
    assert_drafts_mattered(answer)


def test_the_model_is_told_nothing_of_a_request_for_look_up_alone(monkeypatch):
    told = []
    engine = open_drafting(combined=True)
    observe = CombinedDrafter.observe
    monkeypatch.setattr(CombinedDrafter, "observe", lambda self, *facts: (told.append(facts), observe(self, *facts)))
    request = make_request(PROMPTS[3], max_tokens=50, end_ids=(), draft_method="ngram")
    run(engine, submit(engine, request))
    assert told == []

    request = make_request(PROMPTS[3], max_tokens=50, end_ids=(), draft_method="model")
    answer = run(engine, submit(engine, request))  # in the same slot
    assert told
    assert answer.facts() == decode_plain(request).facts()


def test_the_adaptive_policy_keeps_the_text_and_turns_a_useless_draft_off():
    engine = open_drafting(policy=AdaptiveDraftSize(CostModel()), disturbance=50.0, combined=True)
    request = make_request(PROMPTS[1], max_tokens=300, end_ids=(), temperature=1.0, seed=5)
    answer = run(engine, submit(engine, request))
    assert answer.facts() == decode(request, policy=FixedDraftSize(0), session=ToySession(capacity=400)).facts()
    drafted = sum(is_first for _, _, is_first in engine.toys[1].steps)
    assert drafted < 0.6 * answer.last.num_target_steps


def test_depth_1_width_1_and_a_draft_longer_than_the_answer():
    for setting in (
        {"draft_depth": 1, "draft_width": 1},
        {"draft_depth": 30, "max_draft_tokens": 30, "draft_width": 1},
    ):
        request = make_request(PROMPTS[0], max_tokens=9, end_ids=(), **setting)
        engine = open_drafting(policy=FixedDraftSize(64))
        answer = run(engine, submit(engine, request))
        assert answer.facts() == decode_plain(request).facts()
        assert answer.last.num_output_tokens == 9


def test_shared_noise_makes_sampled_drafts_agree_as_often_as_the_models_do():
    """An undisturbed draft that shares the target's noise is right every time, at any temperature."""
    engine = open_drafting(disturbance=0.0)
    request = make_request(max_tokens=100, end_ids=(), temperature=1.0, seed=9, draft_width=1, draft_depth=5)
    answer = run(engine, submit(engine, request))
    assert answer.last.acceptance_rate == 1.0


def test_a_mask_shows_ancestors_and_self():
    tree = DraftTree(token_ids=[5, 6, 7, 8], parents=[ROOT, 0, ROOT, 2], evidence=[0] * 4)
    mask = np.zeros((5, 5), np.bool_)
    tree.fill_mask(mask)
    assert mask.astype(int).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 0, 0, 1, 0],
        [1, 0, 0, 1, 1],
    ]
    assert tree.offsets().tolist() == [0, 1, 2, 1, 2]
    assert not tree.is_chain and DraftTree.chain([1, 2]).is_chain


def test_a_looked_up_branch_joins_the_tree_where_it_leaves_it():
    tree = DraftTree(token_ids=[5, 6, 9], parents=[ROOT, 0, ROOT], evidence=[7, 7, 7])
    joined = join_branch(tree, DraftTree.chain([5, 8, 9], evidence=3))
    assert joined == DraftTree(token_ids=[5, 6, 9, 8, 9], parents=[ROOT, 0, ROOT, 0, 3], evidence=[7, 7, 7, 3, 3])
    assert join_branch(tree, DraftTree.chain([5, 6], evidence=3)) == tree


def test_a_joined_tree_that_is_too_large_keeps_its_likeliest_nodes():
    tree = DraftTree(token_ids=[5, 6, 9, 8, 9], parents=[ROOT, 0, ROOT, 0, 3], evidence=[0, 1, 1, 2, 2])
    kept = keep_best(tree, 3, [0.5, 0.1, 0.9])
    assert kept == DraftTree(token_ids=[5, 8, 9], parents=[ROOT, 0, 1], evidence=[0, 2, 2])
    assert keep_best(tree, 5, [0.5, 0.1, 0.9]) is tree
