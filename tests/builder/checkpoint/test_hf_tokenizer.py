"""Tokenizer files of a folder: template, special tokens, end ids, sampling defaults, vocabulary against embedding."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from draftsmith.builder.checkpoint.source import Checkpoint, open_checkpoint
from draftsmith.builder.errors import CheckpointError

from tests.tiny_tokenizer import CHAT_TEMPLATE, SPECIAL_TOKENS, tokenizer_values

Write = Callable[..., Path]


def opened(folder: Path) -> Checkpoint:
    checkpoint = open_checkpoint(folder)
    checkpoint.close()
    return checkpoint


def write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values))


def test_tokenizer_json_is_kept_as_it_is(tiny_checkpoint: Write) -> None:
    folder = tiny_checkpoint("llama")
    files = opened(folder).tokenizer
    assert files.tokenizer_json == (folder / "tokenizer.json").read_text()
    assert files.chat_template == CHAT_TEMPLATE
    assert (files.bos_id, files.eos_id, files.pad_id, files.vocab_size) == (1, 2, 2, 300)
    assert files.special_tokens == SPECIAL_TOKENS
    assert not files.adds_bos


def test_embedding_may_have_padding_rows_but_no_id_may_lack_a_row(tmp_path: Path, tiny_checkpoint: Write) -> None:
    assert opened(tiny_checkpoint("llama", vocab_size=384)).tokenizer.vocab_size == 300
    with pytest.raises(CheckpointError, match="expected an id below the embedding's 299 rows, found 299"):
        open_checkpoint(tiny_checkpoint("qwen3", vocab_size=299))


def test_added_token_without_a_row_is_refused_by_name(tiny_checkpoint: Write) -> None:
    folder = tiny_checkpoint("llama", vocab_size=300)
    values = tokenizer_values()
    values["added_tokens"].append({**values["added_tokens"][0], "id": 300, "content": "<|extra|>"})
    write_json(folder / "tokenizer.json", values)
    with pytest.raises(CheckpointError, match=r"token `<\|extra\|>`: expected an id below the embedding's 300 rows"):
        open_checkpoint(folder)


def test_post_processor_that_adds_bos_is_noticed(tiny_checkpoint: Write) -> None:
    folder = tiny_checkpoint("llama")
    values = tokenizer_values()
    values["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "B", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"B": {"id": "B", "ids": [1], "tokens": ["<|im_start|>"]}},
    }
    write_json(folder / "tokenizer.json", values)
    assert opened(folder).tokenizer.adds_bos


def test_template_file_wins_over_the_config_and_named_ones_give_the_default(tiny_checkpoint: Write) -> None:
    folder = tiny_checkpoint("llama")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    write_json(folder / "tokenizer_config.json", {**config, "chat_template": named})
    assert opened(folder).tokenizer.chat_template == "D"
    (folder / "chat_template.jinja").write_text("J")
    assert opened(folder).tokenizer.chat_template == "J"


def test_no_template_is_none(tiny_checkpoint: Write) -> None:
    folder = tiny_checkpoint("llama")
    (folder / "tokenizer_config.json").unlink()
    files = opened(folder).tokenizer
    assert (files.chat_template, files.special_tokens, files.bos_id) == (None, {}, None)


def test_special_tokens_may_be_objects_or_in_their_own_file(tiny_checkpoint: Write) -> None:
    folder = tiny_checkpoint("llama")
    write_json(folder / "tokenizer_config.json", {"bos_token": None})
    bos, eos = {"content": "<|im_start|>", "lstrip": False}, "<|im_end|>"
    write_json(folder / "special_tokens_map.json", {"bos_token": bos, "eos_token": eos})
    files = opened(folder).tokenizer
    assert (files.bos_id, files.eos_id) == (1, 2)


@pytest.mark.parametrize(
    ("generation", "end_ids"),
    [
        ({"eos_token_id": [2, 0, 2]}, (2, 0)),
        ({"eos_token_id": 0}, (0,)),
        ({}, (2,)),  # the config's
        (None, (2,)),
    ],
)
def test_end_ids_come_from_the_generation_config_then_the_config(
    tiny_checkpoint: Write, generation: dict[str, Any] | None, end_ids: tuple[int, ...]
) -> None:
    assert opened(tiny_checkpoint("llama", generation=generation)).generation.end_ids == end_ids


def test_end_id_of_the_tokenizer_is_the_last_resort(tiny_checkpoint: Write) -> None:
    assert opened(tiny_checkpoint("llama", eos_token_id=None)).generation.end_ids == (2,)


def test_sampling_defaults_count_only_where_sampling_is_on(tiny_checkpoint: Write) -> None:
    values = {"temperature": 0.6, "top_p": 0.9, "top_k": 50}
    on = opened(tiny_checkpoint("llama", generation={**values, "do_sample": True})).generation
    assert (on.temperature, on.top_p, on.top_k) == (0.6, 0.9, 50)
    off = opened(tiny_checkpoint("llama", generation=values)).generation
    assert (off.temperature, off.top_p, off.top_k) == (None, None, None)


@pytest.mark.parametrize(
    "generation",
    [{"eos_token_id": "2"}, {"eos_token_id": [-1]}, {"eos_token_id": 305}, {"do_sample": True, "temperature": "hot"}],
)
def test_wrong_generation_values_are_refused(tiny_checkpoint: Write, generation: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"eos_token_id|temperature"):
        open_checkpoint(tiny_checkpoint("llama", generation=generation))


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", "{", '{"model": {"type": "Evil"}}', "\ud800".encode("utf-8", "surrogatepass")]
)
def test_tokenizer_json_that_is_none_is_refused(tiny_checkpoint: Write, text: str | bytes) -> None:
    folder = tiny_checkpoint("llama")
    (folder / "tokenizer.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        open_checkpoint(folder)


def test_folder_without_a_tokenizer_is_refused(tiny_checkpoint: Write) -> None:
    folder = tiny_checkpoint("llama")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: expected the file, found none"):
        open_checkpoint(folder)
