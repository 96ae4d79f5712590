"""Byte-level BPE tables -> `tokenizers` JSON."""

from typing import Any

from draftsmith.builder.errors import CheckpointError

from .pre_tokenizers import STYLES
from .token_table import CONTROL, UNKNOWN, UNUSED, USER_DEFINED, TokenTable
from .tokenizer import dump_tokenizer


def byte_level_json(
    table: TokenTable, merges: list[str], *, pre: object, bos: int | None, eos: int | None, where: str
) -> str:
    """JSON of the tokenizer. ``merges``: "left right", best first. ``pre``: name of how text is cut, see ``STYLES``.

    Raises ``CheckpointError`` for an unknown ``pre``, a merge whose parts or result are no tokens, or a repeated token.
    """
    name = "default" if pre is None else pre
    if not isinstance(name, str) or name not in STYLES:
        raise CheckpointError(
            "tokenizer.ggml.pre",
            expected=f"one of {', '.join(STYLES)}",
            found=repr(pre),
            where=where,
            action="This tokenizer's way to cut text is not known: use the Hugging Face checkpoint instead.",
        )
    style = STYLES[name]
    unused = {i for i, kind in enumerate(table.kinds) if kind == UNUSED}
    vocab = {token: i for i, token in enumerate(table.tokens) if i not in unused}
    if len(vocab) != len(table.tokens) - len(unused):
        raise CheckpointError("tokenizer.ggml.tokens", expected="each token once", found="some twice", where=where)
    pairs = [_pair(merge, vocab, where) for merge in merges]
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return dump_tokenizer(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": table.added_tokens((CONTROL, USER_DEFINED, UNKNOWN)),
            "normalizer": style.normalizer,
            "pre_tokenizer": style.pre_tokenizer,
            "post_processor": table.post_processor(bos, eos),
            "decoder": byte_level,
            "model": _bpe_model(vocab, pairs, ignore_merges=style.ignore_merges),
        }
    )


def _bpe_model(vocab: dict[str, int], pairs: list[list[str]], *, ignore_merges: bool) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": ignore_merges,
        "vocab": vocab,
        "merges": pairs,
    }


def _pair(merge: str, vocab: dict[str, int], where: str) -> list[str]:
    """The two parts; a space inside a part (some converters keep them) is found by trying each."""
    left, _, right = merge.partition(" ")
    if left in vocab and right in vocab and left + right in vocab:
        return [left, right]
    for at in (i for i, char in enumerate(merge) if char == " "):
        left, right = merge[:at], merge[at + 1 :]
        if left in vocab and right in vocab and left + right in vocab:
            return [left, right]
    raise CheckpointError(
        "tokenizer.ggml.merges", expected="two tokens that make a third", found=f"{merge!r:.80}", where=where
    )
