"""Tokenizers made from GGUF tables give the ids of independent implementations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draftsmith.builder.checkpoint.gguf_tokenizer import read_generation, read_tokenizer
from draftsmith.builder.checkpoint.pre_tokenizers import STYLES
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.errors import CheckpointError
from tokenizers import Tokenizer

from tests.nasty_texts import NASTY_TEXTS
from tests.tiny_tokenizer import CHAT_TEMPLATE, MERGES, TOKENS

P = "tokenizer.ggml."
PLAIN_TEXTS = [text for text in NASTY_TEXTS if "<|" not in text]
VOCAB = {token: token_id for token_id, token in enumerate(TOKENS)}


def tables(**changes: Any) -> dict[str, Any]:
    values = {
        "model": "gpt2",
        "pre": "smollm",
        "tokens": list(TOKENS),
        "token_type": np.array([3] * 3 + [1] * (len(TOKENS) - 3), np.int32),
        "merges": list(MERGES),
        "bos_token_id": 1,
        "eos_token_id": 2,
        **changes,
    }
    return {P + key: value for key, value in values.items() if value is not None}


def build(num_rows: int = 400, **changes: Any) -> Tokenizer:
    return Tokenizer.from_str(read_tokenizer(tables(**changes), num_rows, "x.gguf").tokenizer_json)


def refusal(num_rows: int = 400, **changes: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_tokenizer(tables(**changes), num_rows, "x.gguf")
    return str(caught.value)


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "default"])
@pytest.mark.parametrize("text", PLAIN_TEXTS)
def test_ids_equal_bpe_in_plain_python(pre: str, text: str) -> None:
    pytest.importorskip("regex")
    from tests.builder.checkpoint import byte_pair_oracle as oracle

    expected = oracle.encode(text, VOCAB, MERGES, oracle.PATTERNS[pre])
    assert build(pre=pre).encode(text).ids == expected


def test_llama3_cuts_as_transformers_own_converter_and_takes_whole_words() -> None:
    pytest.importorskip("regex")
    conversion = pytest.importorskip("transformers.convert_slow_tokenizer")
    from tests.builder.checkpoint import byte_pair_oracle as oracle

    tokens = [*TOKENS, "hello", "123"]  # no merges lead to them
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    kinds = np.array([3] * 3 + [1] * (len(tokens) - 3), np.int32)
    tokenizer = build(pre="llama-bpe", tokens=tokens, token_type=kinds)
    patterns = [conversion.TikTokenConverter().pattern]
    for text in [*PLAIN_TEXTS, "hello 12345 hello"]:
        expected = oracle.encode(text, vocab, MERGES, patterns, whole_words=True)
        assert tokenizer.encode(text).ids == expected
    assert tokenizer.encode("hello").ids == [vocab["hello"]]


def test_qwen2_equals_transformers_own_tokenizer() -> None:
    qwen = pytest.importorskip("transformers.models.qwen2.tokenization_qwen2")
    expected = qwen.Qwen2Tokenizer(vocab=VOCAB, merges=[tuple(m.split(" ")) for m in MERGES])
    tokenizer = build(pre="qwen2")
    for text in PLAIN_TEXTS:
        assert tokenizer.encode(text).ids == expected(text)["input_ids"]


@pytest.mark.parametrize("pre", sorted(STYLES))
def test_special_tokens_are_taken_whole_and_hidden_again(pre: str) -> None:
    tokenizer = build(pre=pre)
    ids = tokenizer.encode("<|im_start|>the<|im_end|>\n").ids
    assert ids == [1, VOCAB["the"], 2, VOCAB["Ċ"]]
    assert tokenizer.decode(ids) == "the\n"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<|im_start|>the<|im_end|>\n"


@pytest.mark.parametrize("pre", sorted(set(STYLES) - {"qwen2", "deepseek-r1-qwen"}))
def test_every_text_survives_encoding_and_decoding(pre: str) -> None:
    tokenizer = build(pre=pre)
    for text in PLAIN_TEXTS:
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_unknown_cut_and_model_are_refused_by_name() -> None:
    assert "tokenizer.ggml.pre: expected one of smollm, " in refusal(pre="tekken")
    assert "found 'tekken'" in refusal(pre="tekken")
    assert "tokenizer.ggml.model: expected gpt2 (byte-level BPE) or llama" in refusal(model="bert")


def test_bos_is_added_where_the_file_says_so() -> None:
    assert not read_tokenizer(tables(), 400, "x").adds_bos
    files = read_tokenizer(tables(add_bos_token=True), 400, "x")
    assert files.adds_bos
    tokenizer = Tokenizer.from_str(files.tokenizer_json)
    assert tokenizer.encode("the").ids == [1, VOCAB["the"]]
    assert tokenizer.encode("the", add_special_tokens=False).ids == [VOCAB["the"]]


def test_end_token_is_added_where_the_file_says_so() -> None:
    assert build(add_eos_token=True).encode("the").ids == [VOCAB["the"], 2]
    assert build(add_eos_token=True, add_bos_token=True).encode("").ids == [1, 2]


def test_user_defined_tokens_are_whole_but_visible() -> None:
    kinds = np.array([3] * 3 + [1] * (len(TOKENS) - 3) + [4], np.int32)
    tokenizer = build(tokens=[*TOKENS, "<tool>"], token_type=kinds)
    assert tokenizer.encode("<tool>").ids == [len(TOKENS)]
    assert tokenizer.decode([len(TOKENS)]) == "<tool>"


def test_unused_padding_tokens_are_no_text() -> None:
    kinds = np.array([3] * 3 + [1] * (len(TOKENS) - 3) + [5], np.int32)
    tokenizer = build(tokens=[*TOKENS, "[PAD300]"], token_type=kinds)
    assert len(tokenizer.encode("[PAD300]").ids) == 8
    assert tokenizer.token_to_id("[PAD300]") is None


def test_vocabulary_may_be_smaller_than_the_embedding_but_not_larger() -> None:
    assert read_tokenizer(tables(), 305, "x").vocab_size == 300
    assert read_tokenizer(tables(), 300, "x").vocab_size == 300
    text = refusal(299)
    assert "expected an id below the embedding's 299 rows, found 299" in text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"tokens": None}, "tokenizer.ggml.tokens: expected the vocabulary"),
        ({"token_type": np.zeros(3, np.int32)}, "tokenizer.ggml.token_type: expected 300 numbers"),
        ({"merges": None}, "tokenizer.ggml.merges"),
        ({"merges": ["q q"]}, "tokenizer.ggml.merges: expected two tokens that make a third, found 'q q'"),
        ({"merges": ["nospace"]}, "tokenizer.ggml.merges"),
        ({"eos_token_id": 300}, "tokenizer.ggml.eos_token_id: expected an id from 0 to 299, found 300"),
        ({"bos_token_id": -1}, "tokenizer.ggml.bos_token_id"),
        ({"add_bos_token": 1}, "tokenizer.ggml.add_bos_token: expected true or false"),
        ({"tokens": [*TOKENS[:-1], "the"]}, "tokenizer.ggml.tokens: expected each token once"),
        ({"model": "llama"}, "tokenizer.ggml.scores"),
    ],
)
def test_tables_that_do_not_fit_are_refused(changes: dict[str, Any], text: str) -> None:
    assert text in refusal(**changes)


def test_end_ids_are_all_that_the_file_names_and_known_ends_of_turn() -> None:
    kinds = np.array([3] * 3 + [1] * (len(TOKENS) - 3) + [3], np.int32)
    metadata = tables(tokens=[*TOKENS, "<|eot_id|>"], token_type=kinds, eos_token_id=0)
    assert read_generation(metadata, "x").end_ids == (0, 2, 300)  # <|endoftext|>, <|im_end|>, <|eot_id|>
    assert read_generation({**metadata, P + "eot_token_id": 5}, "x").end_ids == (0, 5, 2, 300)


def test_template_and_special_strings_are_kept() -> None:
    metadata = {**tables(), "tokenizer.chat_template": CHAT_TEMPLATE}
    files = read_tokenizer(metadata, 400, "x")
    assert files.chat_template == CHAT_TEMPLATE
    assert files.special_tokens == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    assert (files.bos_id, files.eos_id, files.pad_id) == (1, 2, None)


def test_real_smollm2_file_reads_as_its_tables_say(smollm2_gguf: Path) -> None:
    gguf = pytest.importorskip("gguf")
    pytest.importorskip("regex")
    from tests.builder.checkpoint import byte_pair_oracle as oracle

    with open_checkpoint(smollm2_gguf) as checkpoint:
        reader = gguf.GGUFReader(smollm2_gguf)
        tokens = reader.fields[P + "tokens"].contents()
        merges = reader.fields[P + "merges"].contents()
        vocab = {token: token_id for token_id, token in enumerate(tokens)}
        tokenizer = Tokenizer.from_str(checkpoint.tokenizer.tokenizer_json)
        for text in PLAIN_TEXTS:
            assert tokenizer.encode(text).ids == oracle.encode(text, vocab, merges, oracle.PATTERNS["smollm"])
        assert tokenizer.encode("<|im_start|>user\nHi").tokens == ["<|im_start|>", "user", "Ċ", "Hi"]
        assert (checkpoint.tokenizer.vocab_size, checkpoint.tokenizer.adds_bos) == (49_152, False)
        assert checkpoint.generation.end_ids == (2,)
        stored = {tensor.name: tensor for tensor in reader.tensors}
        for name, stored_name in (
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.layers.11.mlp.down_proj.weight", "blk.11.ffn_down.weight"),
            ("model.norm.weight", "output_norm.weight"),
        ):
            expected = gguf.dequantize(stored[stored_name].data, stored[stored_name].tensor_type)
            np.testing.assert_array_equal(checkpoint.weights.read(name), expected)
        rows = gguf.dequantize(stored["blk.7.attn_k.weight"].data, stored["blk.7.attn_k.weight"].tensor_type)
        found = checkpoint.weights.read("model.layers.7.self_attn.k_proj.weight")
        # head 1: row 64 + i of the first half is ggml's row 64 + 2 i, of the second half 64 + 2 i + 1
        np.testing.assert_array_equal(found[64 + 5], rows[64 + 10])
        np.testing.assert_array_equal(found[64 + 32 + 5], rows[64 + 11])
