"""What a call sends: the tensors that arrive at the server, headers, and what is refused before sending."""

import math

import numpy as np
import pytest
from draftsmith.client import ClientError, InvalidRequest

from .twins import KINDS, open_client

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße 👋"}]


def sent(server):
    (request,) = server.requests
    return request


def test_prompt_alone_sends_the_prompt_and_the_stream_flag(server, client):
    client.generate("Hi 👋")
    assert sent(server) == {"text_input": ["Hi 👋".encode()], "stream": [False]}


def test_stream_asks_for_a_stream(server, client):
    client.stream("Hi").read_all()
    assert sent(server)["stream"] == [True]


def test_messages_are_sent_as_json(server, client):
    client.generate(messages=CHAT)
    assert sent(server)["messages"] == [
        '[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße 👋"}]'.encode()
    ]


@pytest.mark.parametrize("ids", [[3, 1, 2], (3, 1, 2), np.array([3, 1, 2], np.int64), {3: "", 1: "", 2: ""}.keys()])
def test_input_ids_may_be_any_integers(server, client, ids):
    client.generate(input_ids=ids)
    assert sent(server)["input_ids"] == [3, 1, 2]


def test_every_option_arrives_under_its_name(server, client):
    client.generate(
        "x",
        max_tokens=7,
        min_tokens=2,
        temperature=0.5,
        top_k=3,
        top_p=0.25,
        min_p=0.125,
        repetition_penalty=1.5,
        presence_penalty=-0.5,
        frequency_penalty=0.75,
        seed=2**64 - 1,
        stop_words=["\n\n", "Ä"],
        bad_words=("no",),
        end_ids=[2, 0],
        return_log_probs=True,
        num_top_log_probs=5,
        speculate=False,
        max_draft_tokens=4,
        draft_depth=3,
        draft_width=2,
        draft_method="model",
    )
    assert sent(server) == {
        "text_input": [b"x"],
        "stream": [False],
        "max_tokens": [7],
        "min_tokens": [2],
        "temperature": [0.5],
        "top_k": [3],
        "top_p": [0.25],
        "min_p": [0.125],
        "repetition_penalty": [1.5],
        "presence_penalty": [-0.5],
        "frequency_penalty": [0.75],
        "seed": [2**64 - 1],
        "stop_words": [b"\n\n", "Ä".encode()],
        "bad_words": [b"no"],
        "end_id": [2, 0],
        "return_log_probs": [True],
        "num_top_log_probs": [5],
        "speculate": [False],
        "max_draft_tokens": [4],
        "draft_depth": [3],
        "draft_width": [2],
        "draft_method": [b"model"],
    }


def test_no_end_ids_means_that_none_ends_the_text(server, client):
    client.generate("x", end_ids=[])
    assert sent(server) == {"text_input": [b"x"], "stream": [False], "ignore_eos": [True]}


@pytest.mark.parametrize("kind", KINDS)
def test_headers_are_sent_with_every_request(server, kind):
    with open_client(kind, server.url, headers={"Authorization": "Bearer 1"}) as client:
        client.generate("x")
    assert server.headers[0]["authorization"] == "Bearer 1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "prompt: expected exactly one of prompt, messages, input_ids, found none"),
        (
            {"prompt": "a", "input_ids": [1]},
            "prompt: expected exactly one of prompt, messages, input_ids, found prompt, input_ids",
        ),
        ({"prompt": ""}, "text: expected a prompt of at least one token, found an empty one"),
        ({"prompt": b"a"}, "text: expected a string, found bytes"),
        ({"prompt": "\ud800"}, "text_input: expected text that UTF-8 can hold, found surrogates not allowed"),
        ({"input_ids": []}, "input_ids: expected a prompt of at least one token"),
        ({"input_ids": [1.0]}, "input_ids: expected a list of integers, found one of float"),
        ({"input_ids": "12"}, "input_ids: expected a list of integers, found str"),
        ({"input_ids": [-1]}, "input_ids: expected an integer from 0 to 2147483647, found -1"),
        ({"messages": []}, "messages: expected a prompt of at least one token"),
        ({"messages": ["a"]}, r"messages: expected a list of {role, content}, found one of str"),
        ({"messages": [{"role": "user"}]}, "messages: expected content in every turn, found none"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages: expected a string as content, found int"),
        ({"temperature": math.nan}, "temperature: expected a finite number, found nan"),
        ({"temperature": -1}, "temperature: expected a number from 0 to 100, found -1"),
        ({"top_p": 0.0}, "top_p: expected a number above 0 to 1, found 0.0"),
        ({"max_tokens": 0}, "max_tokens: expected an integer from 1 to 2147483647, found 0"),
        ({"max_tokens": 10**30}, "max_tokens: expected an integer from 1"),
        ({"max_tokens": True}, "max_tokens: expected an integer"),
        ({"min_tokens": 4, "max_tokens": 3}, "min_tokens: expected at most max_tokens = 3, found 4"),
        ({"seed": -1}, "seed: expected an integer from 0 to 18446744073709551615, found -1"),
        ({"stop_words": "stop"}, "stop_words: expected a list of strings, found str"),
        ({"stop_words": [1]}, "stop_words: expected a list of strings, found one of int"),
        ({"stop_words": [""]}, "stop_words: expected words of 1 to 256 characters, found one of 0"),
        ({"bad_words": ["\udc80"]}, "bad_words: expected text that UTF-8 can hold"),
        ({"end_ids": [0.5]}, "end_ids: expected a list of integers, found one of float"),
        ({"input_ids": [True]}, "input_ids: expected a list of integers, found one of bool"),
        ({"end_ids": [False]}, "end_ids: expected a list of integers, found one of bool"),
        ({"speculate": "no"}, "speculate: expected True or False, found 'no'"),
        ({"return_log_probs": 1}, "return_log_probs: expected True or False, found 1"),
        ({"timeout": 0}, "timeout: expected seconds above 0, or None, found 0"),
        ({"timeout": math.nan}, "timeout: expected seconds above 0"),
    ],
)
def test_what_cannot_be_served_is_refused_before_sending(server, client, arguments, message):
    alone = not arguments or arguments.keys() & {"prompt", "input_ids", "messages"}
    with pytest.raises(InvalidRequest) as caught:
        client.generate(**({} if alone else {"prompt": "x"}), **arguments)
    assert str(caught.value).startswith(message.rstrip("."))
    assert server.requests == []


def test_error_has_the_facts_as_attributes(client):
    with pytest.raises(InvalidRequest) as caught:
        client.stream("x", top_k=-1)
    assert (caught.value.subject, caught.value.found) == ("top_k", "-1")
    assert isinstance(caught.value, ClientError)


def test_unknown_keyword_is_named_with_the_closest_known_one(client):
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'temprature'. Did you mean 'temperature'\?"):
        client.generate("x", temprature=1.0)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'xyzzy'. Known: max_tokens, "):
        client.stream("x", xyzzy=1)
