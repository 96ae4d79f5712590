"""Answers through Triton and gRPC are those of the engine in this process."""

import asyncio
import json
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from draftsmith.builder.serve import ServerProcess
from draftsmith.client import AsyncClient, Client

from tests.end_to_end.conftest import Answer

pytestmark = pytest.mark.triton
PROMPTS = ["Hello world", "a b a b a b a b", "one two three one two three one two", "x"]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_streamed_text_is_the_engines(client: Client, ask_in_process: Callable[..., Answer], prompt: str) -> None:
    expected = ask_in_process(prompt, max_tokens=40)
    with client.stream(prompt, max_tokens=40) as stream:
        pieces = [chunk.text for chunk in stream]
    assert "".join(pieces) == expected.text
    assert (stream.result.token_ids, stream.finish_reason) == (expected.token_ids, expected.finish_reason)


def test_one_response_says_what_the_stream_says(client: Client) -> None:
    whole = client.generate("a b a b a b", max_tokens=24, seed=5, temperature=1.0)
    with client.stream("a b a b a b", max_tokens=24, seed=5, temperature=1.0) as stream:
        assert "".join(chunk.text for chunk in stream) == whole.text
    assert whole.usage.output == len(whole.token_ids)
    assert stream.result.token_ids == whole.token_ids


def test_plain_and_speculative_text_are_the_same(client: Client) -> None:
    prompt = "one two three one two three one two three"
    plain = client.generate(prompt, max_tokens=100, end_ids=(), speculate=False)
    fast = client.generate(prompt, max_tokens=100, end_ids=(), speculate=True)
    assert fast.token_ids == plain.token_ids
    assert plain.draft.drafted == 0
    assert 0 < fast.draft.accepted < fast.draft.drafted


def test_a_seed_gives_the_same_text_among_others(client: Client) -> None:
    alone = client.generate("Hello", max_tokens=30, temperature=1.0, seed=11)
    with ThreadPoolExecutor(12) as pool:
        seeds = [11, *range(100, 110), 11]
        results = list(pool.map(lambda s: client.generate("Hello", max_tokens=30, temperature=1.0, seed=s), seeds))
    assert results[0].token_ids == results[-1].token_ids == alone.token_ids
    assert len({result.token_ids for result in results}) > 1


def test_more_streams_than_slots_all_end_with_their_own_text(
    client: Client, ask_in_process: Callable[..., Answer]
) -> None:
    prompts = [f"{prompt} {number}" for number in range(3) for prompt in PROMPTS]
    expected = [ask_in_process(prompt, max_tokens=20).text for prompt in prompts]

    def read(prompt: str) -> str:
        with client.stream(prompt, max_tokens=20) as stream:
            return "".join(chunk.text for chunk in stream)

    with ThreadPoolExecutor(len(prompts)) as pool:
        assert list(pool.map(read, prompts)) == expected


def test_the_asyncio_twin_reads_the_same(client: Client, server: ServerProcess, model: str) -> None:
    async def read() -> list[str]:
        async with AsyncClient(server.grpc_url, model=model, timeout=60.0) as twin:
            results = await asyncio.gather(*(twin.generate(prompt, max_tokens=16) for prompt in PROMPTS))
            return [result.text for result in results]

    assert asyncio.run(read()) == [client.generate(prompt, max_tokens=16).text for prompt in PROMPTS]


def test_chat_messages_go_through_the_template(client: Client) -> None:
    result = client.generate(messages=[{"role": "user", "content": "Hello"}], max_tokens=4)
    plain = client.generate("Hello", max_tokens=4)
    assert result.usage.input > plain.usage.input


def test_a_stop_word_ends_the_text_and_is_not_shown(client: Client) -> None:
    text = client.generate("a b a b", max_tokens=40, end_ids=()).text
    stop = text[len(text) // 2 :][:3]
    result = client.generate("a b a b", max_tokens=40, end_ids=(), stop_words=[stop])
    assert result.finish_reason == "stop_word"
    assert result.text == text[: text.index(stop)]


def test_a_bad_word_is_never_said(client: Client) -> None:
    free = client.generate("Hello", max_tokens=20, end_ids=())
    bad = client.generate("Hello", max_tokens=1, end_ids=()).text
    if not bad.strip() or "\ufffd" in bad:
        pytest.skip("the first token of this tiny model is no word")
    result = client.generate("Hello", max_tokens=20, end_ids=(), bad_words=[bad])
    assert result.token_ids[0] != free.token_ids[0]


def test_log_probabilities_arrive_for_every_token(client: Client) -> None:
    result = client.generate("Hello", max_tokens=12, end_ids=(), return_log_probs=True, num_top_log_probs=2)
    assert len(result.log_probs) == len(result.top_log_probs) == len(result.token_ids) == 12
    for token, log_prob, top in zip(result.token_ids, result.log_probs, result.top_log_probs, strict=True):
        assert (top[0].token_id, top[0].log_prob) == (token, pytest.approx(log_prob, abs=1e-6))  # greedy


def post(server: ServerProcess, path: str, body: dict[str, Any]) -> bytes:
    request = urllib.request.Request(f"http://{server.http_url}{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        content: bytes = answer.read()
    return content


def test_http_generate_says_the_same(client: Client, server: ServerProcess, model: str) -> None:
    expected = client.generate("Hello world", max_tokens=12)
    body = {"text_input": "Hello world", "max_tokens": 12, "stream": False}
    answer = json.loads(post(server, f"/v2/models/{model}/generate", body))
    assert (answer["text_output"], answer["finish_reason"]) == (expected.text, expected.finish_reason)


def test_http_generate_stream_says_the_same_in_pieces(client: Client, server: ServerProcess, model: str) -> None:
    expected = client.generate("Hello world", max_tokens=12)
    body = {"text_input": "Hello world", "max_tokens": 12}
    lines = post(server, f"/v2/models/{model}/generate_stream", body).decode().split("\n\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert "".join(event["text_output"] for event in events) == expected.text
    assert [event.get("finish_reason", "") for event in events][-1] == expected.finish_reason
