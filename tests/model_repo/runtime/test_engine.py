"""Requests join, leave, are refused, cancelled and fail without touching each other."""

import gc
import sys
import threading

import numpy as np
import pytest
from draftsmith.model_repo.contract.errors import ErrorCode, RequestError
from draftsmith.model_repo.contract.params import GenerationRequest, SamplingParams
from draftsmith.model_repo.runtime.draft_policy import FixedDraftSize

from tests.model_repo.decoding import decode, make_engine, make_request, run, submit
from tests.model_repo.toy_session import ToyModel, ToySession

LONG = {"max_tokens": 100, "end_ids": ()}


def refuse(engine, request):
    with pytest.raises(RequestError) as caught:
        submit(engine, request)
    return caught.value


def test_more_requests_than_slots_are_served_in_order_of_arrival():
    engine = make_engine(ToySession(num_slots=2))
    answers = [submit(engine, make_request((240 + i,), max_tokens=5, end_ids=())) for i in range(7)]
    order = []
    while not all(a.is_over for a in answers):
        engine.step()
        order += [i for i, a in enumerate(answers) if a.is_over and i not in order]
    assert order == sorted(order)
    for index, answer in enumerate(answers):
        assert answer.facts() == decode(make_request((240 + index,), max_tokens=5, end_ids=())).facts()


def test_a_full_queue_refuses_and_takes_again_later():
    engine = make_engine(ToySession(num_slots=1), queue_len=2)
    answers = [submit(engine, make_request(max_tokens=3, end_ids=())) for _ in range(3)]
    assert refuse(engine, make_request()).code == ErrorCode.OVERLOADED
    run(engine, *answers)
    assert run(engine, submit(engine, make_request())).is_over


def test_slots_stay_dense_and_moved_caches_stay_right():
    session = ToySession(num_slots=4)
    engine = make_engine(session, policy=FixedDraftSize(3))
    lengths = (5, 60, 9, 60)
    requests = [make_request((240 + i, 241), max_tokens=n, end_ids=()) for i, n in enumerate(lengths)]
    answers = [submit(engine, r) for r in requests]
    while not all(a.is_over for a in answers):
        engine.step()
        slots = sorted(s.slot for s in engine._scheduler._active if not s.is_ended)
        assert len(slots) <= 4
    assert session.num_copies > 0
    assert [a.facts() for a in answers] == [decode(r).facts() for r in requests]


def test_a_long_prompt_is_cut_into_chunks_while_others_go_on():
    session = ToySession(num_slots=2)
    engine = make_engine(session, prefill_chunk_len=16)
    short = submit(engine, make_request((250, 251), **LONG))
    engine.step()
    long = submit(engine, make_request(tuple(range(200, 260)), max_tokens=8, end_ids=()))
    before = len(short.updates)
    turns = 0
    while not long.updates:
        engine.step()
        turns += 1
    assert turns == 4  # 60 tokens in chunks of 16
    assert len(short.updates) == before + 4
    run(engine, long)
    assert long.facts() == decode(make_request(tuple(range(200, 260)), max_tokens=8, end_ids=())).facts()


def test_short_prompts_are_put_into_the_cache_together():
    session = ToySession(num_slots=4)
    engine = make_engine(session)
    for start in range(240, 244):
        submit(engine, make_request((start, start + 1, start + 2)))
    engine.step()
    assert session.steps == [(4, 3)]


def test_the_first_token_leaves_right_after_the_prefill():
    engine = make_engine()
    answer = submit(engine, make_request())
    engine.step()
    assert len(answer.updates) == 1 and len(answer.ids) == 1
    assert answer.last.num_target_steps == 0


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_a_cancelled_request_gives_its_slot_free_at_the_next_turn(turns):
    engine = make_engine(ToySession(num_slots=1), prefill_chunk_len=2)
    answer = submit(engine, make_request((250, 251, 252), **LONG))
    waiting = submit(engine, make_request(max_tokens=2, end_ids=()))
    for _ in range(turns):
        engine.step()
    answer.handle.cancel()
    engine.step()
    assert answer.is_over and answer.last.finish_reason == "cancelled"
    assert engine._scheduler._active[0].request_id == waiting.handle.request_id
    run(engine, waiting)
    answer.handle.cancel()  # after the end it does nothing
    engine.step()
    assert engine.stats().num_cancelled == 1


def test_a_request_cancelled_in_the_queue_never_gets_a_slot():
    engine = make_engine(ToySession(num_slots=1))
    first = submit(engine, make_request(**LONG))
    second = submit(engine, make_request(**LONG))
    engine.step()
    second.handle.cancel()
    engine.step()
    assert second.is_over and second.ids == [] and not first.is_over
    assert engine.stats().num_waiting == 0


def test_a_hundred_cancellations_leave_nothing_behind():
    engine = make_engine()

    def cancel_once():
        answer = submit(engine, make_request(**LONG))
        engine.step()
        engine.step()
        answer.handle.cancel()
        engine.step()
        assert answer.is_over

    for _ in range(10):
        cancel_once()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(100):
        cancel_once()
    gc.collect()
    assert sys.getallocatedblocks() - before < 500
    assert engine.stats().num_active == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_fails_its_request_alone(bad):
    session = ToySession(num_slots=2)
    good = decode(make_request((250, 251), max_tokens=30, end_ids=()))
    row = session.model.score([1]).copy()
    row[5] = bad
    session.spoil[99] = row
    engine = make_engine(session)
    answers = [
        submit(engine, make_request((250, 251), max_tokens=30, end_ids=())),
        submit(engine, make_request((250, 99), max_tokens=30, end_ids=())),
    ]
    run(engine, *answers)
    assert answers[0].facts() == good.facts()
    assert answers[1].last.error.code == ErrorCode.INTERNAL
    assert "finite numbers" in str(answers[1].last.error)
    assert answers[1].ids == [] and answers[1].last.finish_reason == ""
    assert engine.stats().num_failed == 1 and engine.stats().num_active == 0


def test_a_row_that_is_not_finite_in_the_middle_keeps_what_was_sent():
    session = ToySession()
    plain = decode(make_request(max_tokens=30, end_ids=()))
    token = next(t for t in plain.ids if t not in (250, 251, 252, plain.ids[0]))
    session.spoil[token] = np.full(300, np.nan, np.float32)
    first = plain.ids.index(token)
    answer = decode(make_request(max_tokens=30, end_ids=()), session)
    assert answer.ids == plain.ids[: first + 1]
    assert answer.last.num_output_tokens == first + 1
    assert answer.last.error is not None


def test_banning_every_token_fails_the_request_with_the_reason():
    session = ToySession(ToyModel(vocab_size=4, hot_ids=()))
    answer = decode(make_request((3,), min_tokens=5, end_ids=(0, 1, 2, 3)), session)
    assert "every token banned" in str(answer.last.error)


REFUSED = {
    "empty text": (GenerationRequest(text=""), "a prompt of at least one token"),
    "nothing": (GenerationRequest(), "exactly one of"),
    "two prompts": (GenerationRequest(text="a", input_ids=(1,)), "exactly one of"),
    "id too large": (make_request((1, 300)), "ids from 0 to 299"),
    "negative id": (make_request((-1,)), "input_ids"),
    "end id too large": (make_request(end_ids=(300,)), "end_id: expected ids from 0 to 299, found 300"),
    "too long": (make_request((1,) * 150, max_tokens=51), "at most 200 tokens, found 150 + 51"),
    "far too many ids": (make_request((1,) * 100_000), "at most 200 tokens, found 100,000"),
    "ten megabytes": (make_request("a" * 10_000_000), "10,000,000 bytes"),
    "not Unicode": (make_request("a\ud800"), "a lone surrogate"),
    "NaN": (make_request(temperature=float("nan")), "temperature: expected a finite number"),
    "negative": (make_request(max_tokens=-1), "max_tokens: expected an integer from 1"),
    "huge": (make_request(top_k=2**40), "top_k: expected an integer"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_served_is_refused_and_others_go_on(kind):
    request, text = REFUSED[kind]
    engine = make_engine()
    other = submit(engine, make_request(max_tokens=10, end_ids=()))
    engine.step()
    assert text in str(refuse(engine, request))
    run(engine, other)
    assert other.last.finish_reason == "length"


def test_a_prompt_of_the_whole_length_but_one_token_is_served():
    answer = decode(make_request((250,) * 199, max_tokens=1, end_ids=()))
    assert answer.last.num_output_tokens == 1


def test_a_prompt_of_one_token_fills_the_whole_length():
    session = ToySession(min_query_len=2)
    answer = decode(make_request((250,), max_tokens=199, end_ids=()), session)
    assert answer.last.num_output_tokens == 199 and answer.last.error is None


def test_a_callback_that_raises_cancels_its_request_alone(caplog):
    engine = make_engine(ToySession(num_slots=2))
    calls = []

    def raise_error(update):
        calls.append(update)
        raise ZeroDivisionError

    engine.submit(make_request(**LONG), raise_error)
    other = submit(engine, make_request(max_tokens=20, end_ids=()))
    run(engine, other)
    assert other.last.finish_reason == "length"
    assert calls[-1].is_final and sum(u.is_final for u in calls) == 1
    assert "callback failed" in caplog.text


def test_a_step_that_raises_ends_everybody_and_the_engine_is_not_ready(caplog):
    session = ToySession(num_slots=1)
    engine = make_engine(session)
    answers = [submit(engine, make_request(**LONG)) for _ in range(2)]
    session.error = RuntimeError("out of paper")
    engine.start()
    engine._thread.join(10)
    assert not engine.is_ready
    for answer in answers:
        assert answer.is_over and answer.last.error.code == ErrorCode.UNHEALTHY
        assert "out of paper" in str(answer.last.error)
    assert refuse(engine, make_request()).code == ErrorCode.UNHEALTHY
    engine.close()
    assert session.is_closed


def test_close_ends_running_and_waiting_requests_once():
    session = ToySession(num_slots=1, capacity=100_000)
    engine = make_engine(session)
    engine.start()
    assert engine.is_ready
    answers = [submit(engine, make_request(max_tokens=90_000, end_ids=())) for _ in range(3)]
    engine.close()
    engine.close()
    assert all(a.last.finish_reason == "cancelled" for a in answers)
    assert session.is_closed and not engine.is_ready
    assert refuse(engine, make_request()).code == ErrorCode.UNHEALTHY


def test_sixteen_threads_submit_while_the_loop_runs():
    engine = make_engine(ToySession(num_slots=4), queue_len=1000)
    engine.start()
    expected = decode(make_request("the cat", max_tokens=12, stop_words=("x",), bad_words=("e",))).facts()
    wrong, over = [], threading.Semaphore(0)

    def work():
        for _ in range(3):
            updates = []

            def take(update, updates=updates):
                updates.append(update)
                if update.is_final:
                    over.release()

            request = make_request("the cat", max_tokens=12, stop_words=("x",), bad_words=("e",))
            engine.submit(request, take)
            over.acquire()
            wrong.append(updates)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    engine.close()
    assert len(wrong) == 48
    assert {"".join(u.text for u in updates) for updates in wrong} == {expected[0]}


def test_mixed_greedy_and_sampled_rows_do_not_touch_each_other():
    requests = [
        make_request((250,), temperature=0.0, **LONG),
        make_request((250,), temperature=1.0, seed=1, **LONG),
        make_request((250,), temperature=1e-6, **LONG),
        make_request((250,), temperature=3.0, top_k=1, **LONG),
    ]
    engine = make_engine()
    answers = run(engine, *[submit(engine, r) for r in requests])
    assert answers[0].ids == answers[2].ids == answers[3].ids
    assert answers[1].ids == decode(requests[1]).ids != answers[0].ids


def test_requests_without_a_seed_differ():
    request = make_request((250,), temperature=2.0, **LONG)
    assert decode(request).ids != decode(request).ids


def test_messages_go_through_the_chat_template():
    request = GenerationRequest(messages=({"role": "user", "content": "hi"},), sampling=SamplingParams(max_tokens=3))
    text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert decode(request).facts() == decode(make_request(text, max_tokens=3)).facts()


def test_stats_count_what_happened():
    engine = make_engine()
    answers = run(engine, *[submit(engine, make_request((245,) * 4, **LONG)) for _ in range(2)])
    stats = engine.stats()
    assert (stats.num_requests, stats.num_prompt_tokens, stats.num_output_tokens) == (2, 8, 200)
    assert stats.num_draft_tokens == sum(a.last.num_draft_tokens for a in answers)
    assert stats.acceptance_rate == pytest.approx(answers[0].last.acceptance_rate)
    assert stats.rows_per_step == 2.0
    assert stats.tokens_per_row == pytest.approx(198 / stats.num_rows)
    assert set(stats.phase_ms) == {"prefill", "draft", "verify", "accept", "stream"}
    assert all(ms > 0 for ms in stats.phase_ms.values())
