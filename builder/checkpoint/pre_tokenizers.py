"""How byte-level BPE vocabularies cut text before merging, by the name GGUF gives (``tokenizer.ggml.pre``).

Each entry is the published tokenizer.json's own pre-tokenizer for that family; ``default`` is what llama.cpp does for
files that name none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class BytePairStyle:
    """Normalizer and pre-tokenizer as `tokenizers` JSON; ``ignore_merges`` takes whole words from the vocabulary."""

    pre_tokenizer: Mapping[str, Any]
    normalizer: Mapping[str, Any] | None = None
    ignore_merges: bool = False


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _sequence(*steps: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"

_SMOLLM = BytePairStyle(
    pre_tokenizer=_sequence({"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True))
)
_LLAMA = BytePairStyle(pre_tokenizer=_sequence(_split(_LLAMA3), _byte_level(use_regex=False)), ignore_merges=True)
_QWEN = BytePairStyle(pre_tokenizer=_sequence(_split(_QWEN2), _byte_level(use_regex=False)), normalizer={"type": "NFC"})
_PLAIN = BytePairStyle(pre_tokenizer=_byte_level(use_regex=True))
_DEFAULT = BytePairStyle(
    pre_tokenizer=_sequence(
        _split(r"[\p{P}\$\+<=>\^~\|]+"),
        _split(_GPT2),
        _split(r"\p{N}+"),
        _split("[0-9][0-9][0-9]"),
        _byte_level(use_regex=False),
    )
)

STYLES: Mapping[str, BytePairStyle] = {
    "smollm": _SMOLLM,
    "llama-bpe": _LLAMA,
    "llama3": _LLAMA,
    "llama-v3": _LLAMA,
    "qwen2": _QWEN,
    "deepseek-r1-qwen": _QWEN,
    "gpt-2": _PLAIN,
    "default": _DEFAULT,
}
