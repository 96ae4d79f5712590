"""Speculative text is plain text: greedy, seeded, penalised, alone and in ragged batches."""

import itertools

import numpy as np
import pytest
from draftsmith.model_repo.runtime.draft_policy import FixedDraftSize
from draftsmith.model_repo.runtime.draft_tree import DraftTree
from draftsmith.model_repo.runtime.drafter import MAX_MATCH

from tests.model_repo.decoding import OracleDrafter, decode, make_engine, make_request, run, submit
from tests.model_repo.toy_session import ToyModel, ToySession

PROMPTS = [(250, 251, 252), (240,), tuple(range(240, 256)) * 3, (245, 245, 245, 245), (249, 10, 249, 11, 249)]


def decode_plain(request, **options):
    return decode(request, policy=FixedDraftSize(0), **options)


def assert_drafts_mattered(*answers):
    """Equality says nothing unless drafts were both accepted and rejected."""
    drafted = sum(a.last.num_draft_tokens for a in answers)
    accepted = sum(a.last.num_accepted_draft_tokens for a in answers)
    assert 0 < accepted < drafted


def test_greedy_plain_text_is_the_models_argmax_chain():
    model, tokens = ToyModel(), [250, 251, 252]
    for _ in range(40):
        tokens.append(int(model.score(tokens).argmax()))
        if tokens[-1] == 2:
            break
    answer = decode_plain(make_request(tokens[:3], end_ids=()))
    assert answer.ids[: len(tokens) - 3] == tokens[3:]


SETTINGS = [
    {},
    {"temperature": 0.7, "seed": 1},
    {"temperature": 1.0, "seed": 2, "top_k": 5},
    {"temperature": 0.9, "seed": 3, "top_p": 0.7},
    {"temperature": 0.9, "seed": 4, "min_p": 0.2},
    {"repetition_penalty": 1.2},
    {"temperature": 0.8, "seed": 5, "presence_penalty": 0.5, "frequency_penalty": 0.3},
    {"bad_words": ("\u00fa", "\u00fb\u00fc", "e")},
    {"min_tokens": 30},
    {"return_log_probs": True},
    {"return_log_probs": True, "num_top_log_probs": 1},
    {"temperature": 0.7, "seed": 6, "return_log_probs": True, "num_top_log_probs": 5},
]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: "-".join(s) or "greedy")
def test_speculative_text_is_plain_text(setting):
    model = ToyModel(drift=1.0)
    drafted = []
    for prompt in PROMPTS:
        request = make_request(prompt, max_tokens=80, **setting)
        plain = decode_plain(request, session=ToySession(model))
        drafted.append(decode(request, session=ToySession(model)))
        assert drafted[-1].facts() == plain.facts()
    assert_drafts_mattered(*drafted)


def test_a_ragged_batch_of_five_equals_solo_runs():
    requests = [
        make_request(PROMPTS[0], max_tokens=60, end_ids=()),
        make_request(PROMPTS[1], max_tokens=5, end_ids=()),
        make_request(PROMPTS[2], max_tokens=50, temperature=0.8, seed=7),
        make_request(PROMPTS[3], max_tokens=50, speculate=False, end_ids=()),
        make_request(PROMPTS[4], max_tokens=50, repetition_penalty=1.1, end_ids=()),
    ]
    alone = [decode_plain(request) for request in requests]
    engine = make_engine(ToySession(num_slots=5))
    together = run(engine, *[submit(engine, request) for request in requests])
    assert [a.facts() for a in together] == [a.facts() for a in alone]
    assert together[3].last.num_draft_tokens == 0
    assert_drafts_mattered(*together)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::5])
def test_a_seed_gives_the_same_text_in_any_order_of_arrival(order):
    requests = [make_request(p, temperature=1.0, seed=11, max_tokens=30) for p in PROMPTS[:3]]
    requests.append(make_request(PROMPTS[0], temperature=1.0, max_tokens=30))  # unseeded neighbour
    engine = make_engine(ToySession(num_slots=2))
    answers = {}
    for index in order:
        answers[index] = submit(engine, requests[index])
        engine.step()
    run(engine, *answers.values())
    for index in range(3):
        assert answers[index].facts() == decode_plain(requests[index]).facts()


def test_forced_random_acceptance_for_200_steps_leaves_cache_and_text_right():
    session = ToySession(ToyModel(drift=3.0), num_slots=3, capacity=900)
    texts = {}
    for prompt in PROMPTS[:3]:
        request = make_request(prompt, max_tokens=600, end_ids=())
        texts[prompt] = [*prompt, *decode_plain(request, session=ToySession(session.model, capacity=900)).ids]
    drafter = OracleDrafter(texts)
    engine = make_engine(session, drafter=drafter, policy=FixedDraftSize(4), max_draft_len=4)
    answers = [submit(engine, make_request(p, max_tokens=600, end_ids=())) for p in texts]
    for turn in range(200):
        if all(a.is_over for a in answers):
            break
        engine.step()
        for sequence in engine._scheduler._active:
            length = sequence.cached_len
            assert session.cache[sequence.slot, :length].tolist() == sequence.tokens[:length].tolist()
            assert turn == 0 or not sequence.is_prefilled or length == sequence.num_tokens - 1
    run(engine, *answers)
    assert engine.stats().num_steps >= 200
    assert set(drafter.counts) == set(range(5))
    for prompt, answer in zip(texts, answers, strict=True):
        assert [*prompt, *answer.ids] == texts[prompt]
    assert_drafts_mattered(*answers)


@pytest.mark.parametrize("length", [1, 2, 15, 60])
def test_any_draft_length_gives_the_same_text(length):
    request = make_request(PROMPTS[3], max_tokens=50, end_ids=(), max_draft_tokens=length)
    answer = decode(request, policy=FixedDraftSize(length))
    assert answer.facts() == decode_plain(request).facts()
    assert_drafts_mattered(answer)


def test_a_draft_never_reaches_beyond_the_answer_or_the_capacity():
    session = ToySession(capacity=20)
    answer = decode(make_request(PROMPTS[0], max_tokens=17, end_ids=()), session=session)
    assert answer.last.num_output_tokens == 17
    assert answer.last.num_draft_tokens > 0


def test_no_draft_is_made_where_the_request_says_so():
    for setting in ({"speculate": False}, {"max_draft_tokens": 0}):
        answer = decode(make_request(PROMPTS[3], **setting))
        assert answer.last.num_draft_tokens == 0
        assert answer.last.acceptance_rate == 0.0


def test_a_block_of_accepted_tokens_is_one_update():
    answer = decode(make_request(PROMPTS[3], max_tokens=60, end_ids=()))
    blocks = [len(u.token_ids) for u in answer.updates]
    assert max(blocks) > 1
    assert len(answer.updates) == 1 + answer.last.num_target_steps  # the first token comes from the prefill
    assert blocks[0] == 1


class DrawingDrafter:
    """Draws drafts from a distribution of its own and says so; it never looks at the target."""

    def __init__(self, q, seed=0):
        self._q = q
        self._rng = np.random.default_rng(seed)

    def propose(self, queries):
        drafts = []
        for query in queries:
            count = max(min(query.limit, query.depth), 0)
            tokens = self._rng.choice(len(self._q), size=count, p=self._q).tolist()
            drafts.append(DraftTree.chain(tokens, evidence=MAX_MATCH, q=[self._q] * count))
        return drafts


def test_drawn_drafts_keep_the_targets_distribution_of_three_tokens():
    """Chi-square of the joint distribution against enumeration; the draft disagrees with the target."""
    vocab, count = 4, 2000
    model = ToyModel(vocab_size=vocab, hot_ids=(), end_id=0, end_bias=0.0, drift=0.5, seed=5)
    expected = np.zeros((vocab,) * 3)
    for triple in itertools.product(range(vocab), repeat=3):
        tokens, probability = [1, 2], 1.0
        for token in triple:
            weights = np.exp(model.score(tokens).astype(float))
            probability *= weights[token] / weights.sum()
            tokens.append(token)
        expected[triple] = probability
    session = ToySession(model, num_slots=16)
    engine = make_engine(session, drafter=DrawingDrafter(np.array([0.6, 0.2, 0.15, 0.05])), queue_len=count)
    requests = [make_request((1, 2), max_tokens=3, temperature=1.0, end_ids=(), seed=s) for s in range(count)]
    answers = run(engine, *[submit(engine, r) for r in requests], most_turns=20 * count)
    seen = np.zeros((vocab,) * 3)
    for answer in answers:
        seen[tuple(answer.ids)] += 1
    assert_drafts_mattered(*answers)
    statistic = float((((seen - count * expected) ** 2) / (count * expected)).sum())
    assert statistic < 120  # 63 degrees of freedom: mean 63, the 0.99999 quantile is 117
