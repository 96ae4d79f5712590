"""The joined pieces are the tokenizer's own decoding of all ids, for both kinds of tokenizers."""

import json

import numpy as np
import pytest
from draftsmith.model_repo.contract.errors import ManifestError
from draftsmith.model_repo.runtime.detokenizer import Detokenizer, TokenPieces
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.tiny_tokenizer import tokenizer_values

TEXTS = [
    "plain words, and the end of it",
    " leading and  double   spaces\n\tand tabs ",
    "emoji \U0001f600 and family \U0001f468\u200d\U0001f469\u200d\U0001f467 joined, flag \U0001f1e9\U0001f1ea",
    "\u4f60\u597d\u4e16\u754c, \u3053\u3093\u306b\u3061\u306f, \ud55c\uad6d\uc5b4, \u0645\u0631\u062d\u0628\u0627",
    "cafe\u0301 \u00e9 na\u00efve \u2581",
]


def make_byte_level():
    return Tokenizer.from_str(json.dumps(tokenizer_values()))


def make_sentence_piece(*, strips: bool):
    """Words with U+2581 for spaces and 256 byte tokens, as Llama 2 (strips) and Gemma have them."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    pieces += ["\u2581", *"abcdefghijklmnopqrstuvwxyz,", "\u2581and", "\u2581the", "or", "\u2581w", "\u2581\u2581"]
    merges = [("\u2581", "w"), ("o", "r"), ("\u2581", "\u2581")]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token=pieces[0], fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement="\u2581", prepend_scheme="first" if strips else "never", split=False
    )
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strips else steps)
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<s>", "</s>")])
    return tokenizer


TOKENIZERS = {
    "byte level": make_byte_level(),
    "SentencePiece with a stripped start": make_sentence_piece(strips=True),
    "SentencePiece": make_sentence_piece(strips=False),
}
by_kind = pytest.mark.parametrize("kind", TOKENIZERS)


def stream(tokenizer, ids, prompt=()):
    detokenizer = Detokenizer(TokenPieces(tokenizer), np.array(prompt, np.int32))
    return [*(detokenizer.push(token) for token in ids), detokenizer.flush()]


@by_kind
@pytest.mark.parametrize("text", TEXTS)
def test_joined_pieces_are_the_whole_text(kind, text):
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    pieces = stream(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids)
    assert kind != "byte level" or tokenizer.decode(ids) == text
    assert not any("\ufffd" in piece for piece in pieces)


@by_kind
@pytest.mark.parametrize("text", TEXTS)
def test_a_prompt_cut_at_any_token_keeps_its_spaces_and_characters(kind, text):
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    for cut in range(len(ids)):
        before = tokenizer.decode(ids[:cut])
        if "\ufffd" not in before:  # the prompt ends with a whole character
            assert before + "".join(stream(tokenizer, ids[cut:], ids[:cut])) == tokenizer.decode(ids)


def test_a_character_that_the_prompt_began_is_completed_by_the_output():
    tokenizer = TOKENIZERS["byte level"]
    ids = tokenizer.encode("\U0001f600", add_special_tokens=False).ids
    assert "".join(stream(tokenizer, ids[2:], ids[:2])) == "\U0001f600"


def test_only_special_tokens_before_the_output_do_not_keep_the_space():
    tokenizer = TOKENIZERS["SentencePiece with a stripped start"]
    ids = tokenizer.encode("word", add_special_tokens=False).ids
    assert "".join(stream(tokenizer, ids, [1])) == "word"
    assert "".join(stream(tokenizer, ids, [1, *ids])) == " word"


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 299), max_size=40))
def test_any_byte_level_ids_give_the_tokenizers_text(ids):
    tokenizer = TOKENIZERS["byte level"]
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text(max_size=6), max_size=8), st.booleans())
def test_any_sentence_piece_text_gives_the_tokenizers_text(words, strips):
    tokenizer = TOKENIZERS["SentencePiece with a stripped start" if strips else "SentencePiece"]
    ids = [t for word in words for t in tokenizer.encode(word, add_special_tokens=False).ids]
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids)


@by_kind
def test_the_tail_of_an_unfinished_character_is_flushed(kind):
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode("a\U0001f600", add_special_tokens=False).ids
    pieces = stream(tokenizer, ids[:-1])
    assert "".join(pieces) == tokenizer.decode(ids[:-1])
    assert "\ufffd" in pieces[-1] and not any("\ufffd" in piece for piece in pieces[:-1])


@by_kind
def test_special_tokens_and_ids_without_a_token_are_not_shown(kind):
    tokenizer = TOKENIZERS[kind]
    special = next(i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special)
    assert stream(tokenizer, [special, 100_000]) == ["", "", ""]


def test_an_added_token_that_is_not_special_is_shown_as_it_is():
    tokenizer = make_byte_level()
    tokenizer.add_tokens([AddedToken("<tool call>", special=False)])
    ids = tokenizer.encode("a<tool call>b", add_special_tokens=False).ids
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids)


def test_an_unknown_decoder_is_refused_by_name():
    tokenizer = make_byte_level()
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(ManifestError, match="found WordPiece"):
        TokenPieces(tokenizer)
    tokenizer.decoder = None
    with pytest.raises(ManifestError, match="found none"):
        TokenPieces(tokenizer)
