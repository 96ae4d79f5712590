"""Where an answer ends: end tokens, stop words and lengths, at every place of an accepted block."""

import pytest
from draftsmith.model_repo.runtime.draft_policy import FixedDraftSize
from draftsmith.model_repo.runtime.draft_tree import DraftTree

from tests.model_repo.decoding import decode, make_engine, make_request, run, submit
from tests.model_repo.toy_session import ToyModel, ToySession

MODEL = ToyModel(hot_ids=tuple(range(256, 270)), end_bias=-20.0)  # writes letters and merges, never ends by itself
PROMPT = (260, 261, 262)


class PerfectDrafter:
    """Drafts exactly what plain decoding gives."""

    def __init__(self, tokens):
        self._tokens = list(tokens)

    def propose(self, queries):
        return [DraftTree.chain(self._tokens[len(q.tokens) :][: max(min(q.limit, q.depth), 0)]) for q in queries]


def decode_plain(**sampling):
    return decode(make_request(PROMPT, **sampling), ToySession(MODEL), policy=FixedDraftSize(0))


def decode_drafted(length=7, **sampling):
    whole = [*PROMPT, *decode_plain(max_tokens=60, end_ids=()).ids]
    engine = make_engine(ToySession(MODEL), drafter=PerfectDrafter(whole), policy=FixedDraftSize(length))
    return run(engine, submit(engine, make_request(PROMPT, **sampling)))


PLAIN = decode_plain(max_tokens=60, end_ids=())
FIRST_SEEN = {token: PLAIN.ids.index(token) for token in dict.fromkeys(PLAIN.ids)}
CHARS = "".join(sorted(set(PLAIN.text)))


@pytest.mark.parametrize("token", list(FIRST_SEEN), ids=lambda t: f"after-{FIRST_SEEN[t]}")
def test_an_end_token_at_any_offset_of_a_block_ends_the_text_before_it(token):
    setting = {"max_tokens": 50, "end_ids": (token,), "return_log_probs": True}
    plain, drafted = decode_plain(**setting), decode_drafted(**setting)
    assert drafted.facts() == plain.facts()
    assert drafted.ids == PLAIN.ids[: FIRST_SEEN[token]]
    assert drafted.last.finish_reason == "end_id"
    assert len(drafted.logprobs) == len(drafted.ids) == drafted.last.num_output_tokens


def test_end_tokens_fall_on_every_offset_of_a_block():
    assert len({(index - 1) % 8 for index in FIRST_SEEN.values() if index}) >= 4


@pytest.mark.parametrize("start", range(1, 20))
@pytest.mark.parametrize("length", [1, 3, 12])
def test_a_stop_word_at_any_place_cuts_text_ids_and_counts_alike(start, length):
    word = PLAIN.text[start : start + length]
    setting = {"max_tokens": 50, "end_ids": (), "stop_words": (word,), "return_log_probs": True}
    plain, drafted = decode_plain(**setting), decode_drafted(**setting)
    assert drafted.facts() == plain.facts()
    assert drafted.text == PLAIN.text[: PLAIN.text.index(word)]
    assert drafted.last.finish_reason == "stop_word"
    num_tokens = len(drafted.ids)
    assert drafted.ids == PLAIN.ids[:num_tokens]
    assert num_tokens == drafted.last.num_output_tokens == len(drafted.logprobs)
    assert drafted.last.num_accepted_draft_tokens <= num_tokens


def test_a_stop_word_that_spans_two_blocks_is_found():
    drafted = decode_drafted(max_tokens=60, end_ids=())
    first_two = [u.text for u in drafted.updates[1:3]]
    word = first_two[0][-2:] + first_two[1][:2]
    stopped = decode_drafted(max_tokens=60, end_ids=(), stop_words=(word,))
    assert stopped.text == PLAIN.text[: PLAIN.text.index(word)]
    assert stopped.facts() == decode_plain(max_tokens=60, end_ids=(), stop_words=(word,)).facts()


def test_the_cache_is_never_counted_beyond_a_stop():
    session = ToySession(MODEL)
    engine = make_engine(session, drafter=PerfectDrafter([*PROMPT, *PLAIN.ids]))
    seen = []
    engine._scheduler.release, release = lambda s: (seen.append(s), release(s)), engine._scheduler.release
    run(engine, submit(engine, make_request(PROMPT, max_tokens=50, end_ids=(), stop_words=(PLAIN.text[20:24],))))
    (sequence,) = seen
    assert sequence.cached_len == sequence.num_tokens - 1 == 2 + sequence.num_output_tokens
    assert session.cache[0, : sequence.cached_len].tolist() == sequence.tokens[:-1].tolist()


@pytest.mark.parametrize("count", [1, 2, 8, 9, 10])
def test_the_length_ends_the_answer_inside_a_block(count):
    drafted = decode_drafted(max_tokens=count, end_ids=())
    assert drafted.ids == PLAIN.ids[:count]
    assert drafted.last.finish_reason == "length"
    assert drafted.text == decode_plain(max_tokens=count, end_ids=()).text


def test_of_two_end_ids_the_first_that_comes_ends_the_text():
    first, second = list(FIRST_SEEN)[3:5]
    for end_ids in ((first, second), (second, first)):
        assert decode_drafted(max_tokens=50, end_ids=end_ids).ids == PLAIN.ids[: FIRST_SEEN[first]]


def test_a_requests_own_end_id_replaces_the_models():
    model = ToyModel(hot_ids=tuple(range(256, 270)), end_bias=9.0)
    assert decode(make_request(PROMPT), ToySession(model)).last.finish_reason == "end_id"
    own = decode(make_request(PROMPT, end_ids=(299,)), ToySession(model))
    assert own.last.finish_reason == "length" and 2 in own.ids
    assert "<|im_end|>" not in own.text  # special tokens are never shown


def test_min_tokens_suppresses_end_tokens_and_stop_words():
    model = ToyModel(hot_ids=tuple(range(256, 270)), end_bias=9.0)
    for length in (0, 7):
        answer = decode(
            make_request(PROMPT, min_tokens=12, stop_words=tuple(CHARS[:3])),
            ToySession(model),
            policy=FixedDraftSize(length),
        )
        assert answer.last.num_output_tokens >= 12
        assert answer.last.finish_reason in ("end_id", "stop_word")
        assert 2 not in answer.ids[:12]


def test_an_end_token_first_gives_an_empty_answer():
    answer = decode_drafted(max_tokens=50, end_ids=(PLAIN.ids[0],))
    assert (answer.text, answer.ids, answer.last.num_output_tokens) == ("", [], 0)
    assert len(answer.updates) == 1


def test_without_streaming_there_is_one_update_with_everything():
    request = make_request(PROMPT, max_tokens=30, end_ids=(), stream=False, return_log_probs=True)
    answer = decode(request, ToySession(MODEL))
    assert len(answer.updates) == 1
    assert answer.facts() == decode_plain(max_tokens=30, end_ids=(), return_log_probs=True).facts()


def test_text_and_ids_of_the_updates_join_to_the_whole():
    drafted = decode_drafted(max_tokens=60, end_ids=(), stop_words=("never seen",))
    assert (drafted.text, drafted.ids) == (PLAIN.text, PLAIN.ids)
    assert [u.num_output_tokens for u in drafted.updates] == [
        sum(len(v.token_ids) for v in drafted.updates[: i + 1]) for i in range(len(drafted.updates))
    ]
