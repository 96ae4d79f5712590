"""Tokenizer, chat template and generation defaults as facts, and the checks that hold for every format."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from draftsmith.builder.errors import BackendError, CheckpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFiles:
    """What the runtime needs to turn text into ids and back.

    ``tokenizer_json`` is the `tokenizers` library's JSON. ``special_tokens`` maps the template's names (``bos_token``,
    ``eos_token``, ...) to their strings. ``vocab_size`` is the highest id + 1, at most the embedding's rows.
    ``adds_bos`` says whether encoding with special tokens puts ``bos_id`` first.
    """

    tokenizer_json: str
    chat_template: str | None
    bos_id: int | None
    eos_id: int | None
    pad_id: int | None
    special_tokens: Mapping[str, str]
    vocab_size: int
    adds_bos: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDefaults:
    """The checkpoint's own generation settings; None where it says nothing (or says "no sampling")."""

    end_ids: tuple[int, ...] = field(default=())
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None


def build_tokenizer_files(
    tokenizer_json: str,
    *,
    chat_template: str | None,
    special_tokens: Mapping[str, str],
    special_ids: Mapping[str, int | None],
    num_rows: int,
    where: str,
) -> TokenizerFiles:
    """Check a tokenizer against the embedding's ``num_rows`` and gather its facts.

    ``special_ids`` may give ids by name; what it lacks is looked up by string. A tokenizer with fewer ids than rows is
    usual (padding rows); an id without a row raises ``CheckpointError``.
    """
    tokenizer = load_tokenizer(tokenizer_json, where)
    vocab: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    highest = _check_rows(vocab, num_rows, where)
    ids = {name: special_ids.get(name, vocab.get(text)) for name, text in special_tokens.items()}
    ids |= {name: value for name, value in special_ids.items() if value is not None}
    for name, value in ids.items():
        if value is not None and not 0 <= value < num_rows:
            raise CheckpointError(f"{name} id", expected=f"0 to {num_rows - 1}", found=str(value), where=where)
    bos = ids.get("bos_token")
    first = tokenizer.encode("a", add_special_tokens=True).ids[:1]
    return TokenizerFiles(
        tokenizer_json=tokenizer_json,
        chat_template=chat_template,
        bos_id=bos,
        eos_id=ids.get("eos_token"),
        pad_id=ids.get("pad_token"),
        special_tokens=dict(special_tokens),
        vocab_size=highest + 1,
        adds_bos=bos is not None and first == [bos],
    )


def _check_rows(vocab: Mapping[str, int], num_rows: int, where: str) -> int:
    """The highest id (-1 for no tokens), which must have a row."""
    token, highest = max(vocab.items(), key=lambda item: item[1], default=("", -1))
    if highest >= num_rows:
        raise CheckpointError(
            f"token `{token}`",
            expected=f"an id below the embedding's {num_rows} rows",
            found=str(highest),
            where=where,
            action="The tokenizer does not belong to these weights.",
        )
    return highest


def load_tokenizer(tokenizer_json: str, where: str) -> Any:
    """A ``tokenizers.Tokenizer``; ``CheckpointError`` when the JSON is not one."""
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 (optional extra)
    except ImportError as error:
        raise BackendError(
            "package `tokenizers`", expected="it installed", action="Run `pip install 'draftsmith[builder]'`."
        ) from error
    try:
        return Tokenizer.from_str(tokenizer_json)
    except BaseException as error:  # the library raises plain Exception, and PanicException, which is none
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise CheckpointError("tokenizer.json", expected="a tokenizer", found=str(error)[:200], where=where) from error


def dump_tokenizer(values: Mapping[str, Any]) -> str:
    """Compact JSON, text kept readable."""
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))
