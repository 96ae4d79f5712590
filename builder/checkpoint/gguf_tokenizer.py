"""The tokenizer tables of a GGUF file -> the `tokenizers` library's JSON, template, special tokens and end ids."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from draftsmith.builder.errors import CheckpointError

from .byte_pair import byte_level_json
from .sentencepiece import Pieces, sentencepiece_json
from .token_table import CONTROL, TokenTable
from .tokenizer import GenerationDefaults, TokenizerFiles, build_tokenizer_files

PREFIX = "tokenizer.ggml."
ID_KEYS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "pad_token": "padding_token_id",
    "unk_token": "unknown_token_id",
}
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# Control tokens that end a turn in the families' chat formats; older files do not name them in a key.
TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>")
MAX_TEMPLATE_CHARS = 1_000_000


def read_tokenizer(metadata: Mapping[str, Any], num_rows: int, where: str) -> TokenizerFiles:
    """The file's tokenizer; ``num_rows`` is the embedding's.

    Raises ``CheckpointError`` for an unknown kind or pre-tokenizer, by name, and for tables that do not fit together.
    """
    table = read_table(metadata, where)
    ids = {name: _special_id(metadata, key, table, where) for name, key in ID_KEYS.items()}
    add_bos = _flag(metadata, "add_bos_token", metadata.get(PREFIX + "model") == "llama", where)
    bos = ids["bos_token"] if add_bos else None
    eos = ids["eos_token"] if _flag(metadata, "add_eos_token", False, where) else None
    template = metadata.get("tokenizer.chat_template")
    if template is not None and (not isinstance(template, str) or len(template) > MAX_TEMPLATE_CHARS):
        raise CheckpointError(
            "tokenizer.chat_template", expected="a template text", found="something else", where=where
        )
    return build_tokenizer_files(
        _tokenizer_json(metadata, table, bos=bos, eos=eos, unknown=ids["unk_token"], where=where),
        chat_template=template,
        special_tokens={name: table.tokens[value] for name, value in ids.items() if value is not None},
        special_ids=ids,
        num_rows=num_rows,
        where=where,
    )


def read_generation(metadata: Mapping[str, Any], where: str) -> GenerationDefaults:
    """End ids: the end of text, of turn and of message that the file names, and control tokens known to end turns."""
    table = read_table(metadata, where)
    found = [_special_id(metadata, key, table, where) for key in END_KEYS]
    found += [i for i, t in enumerate(table.tokens) if t in TURN_ENDS and table.kinds[i] == CONTROL]
    return GenerationDefaults(end_ids=tuple(dict.fromkeys(value for value in found if value is not None)))


def read_table(metadata: Mapping[str, Any], where: str) -> TokenTable:
    """Tokens and their kinds."""
    tokens = metadata.get(PREFIX + "tokens")
    if not isinstance(tokens, list) or not tokens or not isinstance(tokens[0], str):
        raise CheckpointError(PREFIX + "tokens", expected="the vocabulary", found="none", where=where)
    kinds = metadata.get(PREFIX + "token_type")
    if kinds is None:
        kinds = np.ones(len(tokens), np.int32)
    if not isinstance(kinds, np.ndarray) or len(kinds) != len(tokens):
        raise CheckpointError(PREFIX + "token_type", expected=f"{len(tokens)} numbers", found="others", where=where)
    return TokenTable(tokens, kinds.tolist())


def _tokenizer_json(
    metadata: Mapping[str, Any],
    table: TokenTable,
    *,
    bos: int | None,
    eos: int | None,
    unknown: int | None,
    where: str,
) -> str:
    model = metadata.get(PREFIX + "model")
    if model == "gpt2":
        merges = metadata.get(PREFIX + "merges")
        if not isinstance(merges, list) or not all(isinstance(m, str) and m.count(" ") >= 1 for m in merges):
            raise CheckpointError(PREFIX + "merges", expected="pairs of tokens", found="none", where=where)
        return byte_level_json(table, merges, pre=metadata.get(PREFIX + "pre"), bos=bos, eos=eos, where=where)
    if model == "llama":
        scores = metadata.get(PREFIX + "scores")
        if not isinstance(scores, np.ndarray) or len(scores) != len(table.tokens):
            raise CheckpointError(
                PREFIX + "scores", expected=f"{len(table.tokens)} numbers", found="others", where=where
            )
        prefix_space = _flag(metadata, "add_space_prefix", True, where)
        pieces = Pieces(table, scores.tolist(), unknown=0 if unknown is None else unknown, prefix_space=prefix_space)
        return sentencepiece_json(pieces, bos=bos, eos=eos)
    raise CheckpointError(
        PREFIX + "model",
        expected="gpt2 (byte-level BPE) or llama (SentencePiece)",
        found=repr(model),
        where=where,
        action="This tokenizer is not supported.",
    )


def _special_id(metadata: Mapping[str, Any], key: str, table: TokenTable, where: str) -> int | None:
    value = metadata.get(PREFIX + key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < len(table.tokens):
        expected = f"an id from 0 to {len(table.tokens) - 1}"
        raise CheckpointError(PREFIX + key, expected=expected, found=repr(value), where=where)
    return value


def _flag(metadata: Mapping[str, Any], key: str, default: bool, where: str) -> bool:
    value = metadata.get(PREFIX + key, default)
    if not isinstance(value, bool):
        raise CheckpointError(PREFIX + key, expected="true or false", found=repr(value), where=where)
    return value
