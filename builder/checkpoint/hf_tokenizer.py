"""Tokenizer, chat template and generation defaults of a Hugging Face folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from draftsmith.builder.errors import CheckpointError

from .json_file import read_optional_object, read_text_file
from .sentencepiece import sentencepiece_json
from .sentencepiece_model import read_pieces
from .tokenizer import GenerationDefaults, TokenizerFiles, build_tokenizer_files

MAX_TEMPLATE_BYTES = 1_000_000
SPECIAL_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")


def read_tokenizer(folder: Path, num_rows: int) -> TokenizerFiles:
    """``tokenizer.json`` as it is (else made from ``tokenizer.model``), template and special tokens.

    ``num_rows`` is the embedding's.
    """
    path = folder / "tokenizer.json"
    config = read_optional_object(folder / "tokenizer_config.json")
    special = _special_tokens(read_optional_object(folder / "special_tokens_map.json") | _without_null(config))
    if path.exists():
        text = read_text_file(path)
    elif (folder / "tokenizer.model").exists():
        path = folder / "tokenizer.model"
        text = _convert_pieces(path, config, special)
    else:
        raise CheckpointError("tokenizer.json", expected="the file", found="none", where=str(folder))
    return build_tokenizer_files(
        text,
        chat_template=_chat_template(folder, config),
        special_tokens=special,
        special_ids={},
        num_rows=num_rows,
        where=str(path),
    )


def _convert_pieces(path: Path, config: Mapping[str, Any], special: Mapping[str, str]) -> str:
    """SentencePiece model -> JSON; bos is put first unless the config says not to (as in transformers)."""
    pieces = read_pieces(path)
    tokens = pieces.table.tokens
    for value in (config.get("added_tokens_decoder") or {}).values():
        if isinstance(value, dict) and value.get("content") not in tokens:
            raise CheckpointError(
                f"added token `{value.get('content')}`",
                expected="it in tokenizer.model",
                found="none",
                where=str(path),
                action="Save the fast tokenizer (tokenizer.json) with transformers' `save_pretrained`.",
            )

    def added(name: str, *, default: bool) -> int | None:
        text = special.get(f"{name}_token")
        wanted = config.get(f"add_{name}_token", default)
        return tokens.index(text) if wanted and text in tokens else None

    return sentencepiece_json(pieces, bos=added("bos", default=True), eos=added("eos", default=False))


def read_generation(
    folder: Path, config: Mapping[str, Any], tokenizer: TokenizerFiles, num_rows: int
) -> GenerationDefaults:
    """generation_config.json, else the config's end token, else the tokenizer's; ids are below ``num_rows``."""
    path = folder / "generation_config.json"
    values = read_optional_object(path)
    text = config.get("text_config")
    sources = (values, config, text if isinstance(text, dict) else {})
    found = next((s["eos_token_id"] for s in sources if s.get("eos_token_id") is not None), tokenizer.eos_id)
    ends = found if isinstance(found, list) else [] if found is None else [found]
    for end in ends:
        if isinstance(end, bool) or not isinstance(end, int) or not 0 <= end < num_rows:
            expected = f"token ids from 0 to {num_rows - 1}"
            raise CheckpointError("eos_token_id", expected=expected, found=f"{found!r:.80}", where=str(path))
    if not values.get("do_sample"):
        return GenerationDefaults(end_ids=tuple(dict.fromkeys(ends)))
    return GenerationDefaults(
        end_ids=tuple(dict.fromkeys(ends)),
        temperature=_number(values, "temperature", path),
        top_k=int(top_k) if (top_k := _number(values, "top_k", path)) is not None else None,
        top_p=_number(values, "top_p", path),
    )


def _number(values: Mapping[str, Any], key: str, path: Path) -> float | None:
    value = values.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise CheckpointError(key, expected="a number from 0", found=repr(value), where=str(path))
    return float(value)


def _special_tokens(values: Mapping[str, Any]) -> dict[str, str]:
    tokens: dict[str, str] = {}
    for name in SPECIAL_NAMES:
        value = values.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            tokens[name] = text
    return tokens


def _without_null(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The default template; a file of its own wins over the config, as in transformers."""
    path = folder / "chat_template.jinja"
    if path.exists():
        return read_text_file(path, limit=MAX_TEMPLATE_BYTES)
    value = read_optional_object(folder / "chat_template.json").get("chat_template", config.get("chat_template"))
    if isinstance(value, list):  # several named templates
        named = {t.get("name"): t.get("template") for t in value if isinstance(t, dict)}
        value = named.get("default")
    if value is None or (isinstance(value, str) and len(value) <= MAX_TEMPLATE_BYTES):
        return value
    raise CheckpointError(
        "chat_template",
        expected="a template text",
        found=type(value).__name__,
        where=str(folder / "tokenizer_config.json"),
    )
