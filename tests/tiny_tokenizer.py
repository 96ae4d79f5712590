"""A byte-level BPE tokenizer of 300 tokens (three special ones, 256 bytes, 41 merges) as `tokenizers` JSON values."""

from typing import Any

SPECIAL_TOKENS = {
    "bos_token": "<|im_start|>",
    "eos_token": "<|im_end|>",
    "pad_token": "<|im_end|>",
    "unk_token": "<|endoftext|>",
}
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ bos_token + message['role'] + '\n' + message['content'] + eos_token + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ bos_token + 'assistant\n' }}{% endif %}"
)
MERGES = (
    """
    t h|h e|th e|Ġ t|Ġt he|i n|a n|e r|o n|r e|Ġ a|o u|e n|n d|Ġ s|a t|Ġ w|Ġa nd|in g|Ġ o|Ġo f|i s|Ġ b|o r|e s|i t|a r|
    l l|Ġ c|Ġ i|Ġi n|Ġ f|Ġ m|Ġ p|Ġt o|e d|Ġ Ġ|l e|ĠĠ ĠĠ|a s|o m
""".replace("\n    ", "")
    .strip()
    .split("|")
)


def byte_characters() -> list[str]:
    """The printable character that stands for each byte in byte-level BPE (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


TOKENS = [*SPECIALS, *byte_characters(), *("".join(merge.split()) for merge in MERGES)]
VOCAB_SIZE = len(TOKENS)


def tokenizer_values() -> dict[str, Any]:
    """The content of tokenizer.json."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": token_id,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token_id, token in enumerate(SPECIALS)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: token_id for token_id, token in enumerate(TOKENS)},
            "merges": [merge.split() for merge in MERGES],
        },
    }
