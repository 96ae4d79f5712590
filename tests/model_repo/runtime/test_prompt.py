import pytest
from draftsmith.model_repo.contract.errors import ErrorCode, RequestError
from draftsmith.model_repo.contract.params import GenerationRequest
from draftsmith.model_repo.runtime.chat_template import ChatTemplate
from draftsmith.model_repo.runtime.prompt import PromptEncoder

from tests.model_repo.decoding import tiny_tokenizer
from tests.model_repo.runtime.test_detokenizer import make_sentence_piece
from tests.tiny_tokenizer import CHAT_TEMPLATE, SPECIAL_TOKENS


def make_encoder(tokenizer=None, template=CHAT_TEMPLATE, max_length=50):
    chat = ChatTemplate(template, SPECIAL_TOKENS) if template else None
    return PromptEncoder(tokenizer or tiny_tokenizer(), chat_template=chat, vocab_size=300, max_length=max_length)


def test_special_tokens_written_in_text_are_recognised_as_transformers_does():
    assert make_encoder().encode(GenerationRequest(text="<|im_start|>a")).tolist()[0] == 1


def test_truncation_and_padding_of_the_tokenizer_file_are_switched_off():
    tokenizer = tiny_tokenizer()
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=99)
    assert len(make_encoder(tokenizer).encode(GenerationRequest(text="abcdef"))) == 6


def test_messages_without_a_template_are_refused():
    with pytest.raises(RequestError, match="a model with a chat template, found none"):
        make_encoder(template=None).encode(GenerationRequest(messages=({"role": "user", "content": "x"},)))


def test_a_template_that_writes_nothing_is_refused():
    with pytest.raises(RequestError, match="at least one token"):
        make_encoder(template="{{ '' }}").encode(GenerationRequest(messages=({"role": "user", "content": "x"},)))


@pytest.mark.parametrize("request_", [
    GenerationRequest(text="a" * 100_000),
    GenerationRequest(messages=({"role": "user", "content": "a" * 100_000},)),
    GenerationRequest(input_ids=(5,) * 51),
], ids=["text", "messages", "ids"])  # fmt: skip
def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenised(request_, monkeypatch):
    encoder = make_encoder()
    monkeypatch.setattr(encoder, "_tokenizer", None)
    with pytest.raises(RequestError) as caught:
        encoder.encode(request_)
    assert caught.value.code == ErrorCode.TOO_LONG


def test_a_message_without_text_is_refused():
    with pytest.raises(RequestError):
        make_encoder().encode(GenerationRequest(messages=({"role": "user", "content": None},)))
    with pytest.raises(RequestError):
        make_encoder().encode(GenerationRequest(messages=({"role": "user"},)))


def test_bad_words_are_found_at_the_start_and_after_a_space():
    tokenizer = tiny_tokenizer()
    ids = tokenizer.get_vocab()
    split = (ids["\u0120"], ids["the"])  # how this tokenizer itself writes " the"
    assert set(make_encoder().encode_words(["the"])) == {(ids["the"],), (ids["\u0120the"],), split}
    assert set(make_encoder().encode_words(["b"])) == {(ids["b"],), (ids["\u0120b"],)}


def test_bad_words_of_sentence_piece_are_found_within_a_word_too():
    tokenizer = make_sentence_piece(strips=True)
    ids = tokenizer.get_vocab()
    assert {(ids["or"],), (ids["\u2581"], ids["or"])} <= set(make_encoder(tokenizer).encode_words(["or"]))
