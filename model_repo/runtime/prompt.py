"""A request's prompt as token ids: text, ids or chat messages in, int32 [n] out. Refuses what cannot fit, early."""

from collections.abc import Iterable

import numpy as np
from draftsmith.model_repo.contract.errors import ErrorCode, RequestError
from draftsmith.model_repo.contract.params import GenerationRequest
from tokenizers import Tokenizer

from .chat_template import ChatTemplate
from .sessions.base import Int32Array

_SHRINK = 4  # most that a normalizer makes a text shorter, in bytes (NFC composes, NFKC expands)


class PromptEncoder:
    """Tokenises for one engine. Safe to use from many threads."""

    def __init__(
        self, tokenizer: Tokenizer, *, chat_template: ChatTemplate | None, vocab_size: int, max_length: int
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._chat_template = chat_template
        self._vocab_size = vocab_size
        self._max_length = max_length
        longest = max((len(token.encode()) for token in tokenizer.get_vocab(with_added_tokens=True)), default=1)
        self._most_bytes = max_length * longest * (1 if tokenizer.normalizer is None else _SHRINK)

    def encode(self, request: GenerationRequest) -> Int32Array:
        """The prompt's ids, int32 [n], n >= 1, each below the vocabulary's size.

        Text gets the tokens that the tokenizer adds by itself (a start token, where the model has one); rendered
        messages do not, the template writes them.

        Raises:
            RequestError: empty, not Unicode, ids out of range, or far too long to be tokenised at all.
        """
        if request.input_ids is not None:
            ids = self._check_ids(request.input_ids)
        elif request.messages is not None:
            ids = self._tokenise(self._render(request.messages), "messages", adds_special=False)
        else:
            ids = self._tokenise(request.text or "", "text_input", adds_special=True)
        if not len(ids):
            raise RequestError("prompt", expected="at least one token", found="none")
        return ids

    def encode_words(self, words: Iterable[str]) -> list[tuple[int, ...]]:
        """Every token sequence that writes one of the words at the start of a text or after a space."""
        sequences: set[tuple[int, ...]] = set()
        for word in words:
            for text in (word, " " + word):
                sequences.add(tuple(self._tokenizer.encode(text, add_special_tokens=False).ids))
            for piece in (word, "\u2581" + word, "\u0120" + word):  # whole words that encode() may split or prefix
                token = self._tokenizer.token_to_id(piece)
                if token is not None:
                    sequences.add((token,))
        return sorted(s for s in sequences if s)

    def _render(self, messages: tuple[dict[str, str], ...]) -> str:
        if self._chat_template is None:
            raise RequestError(
                "messages", expected="a model with a chat template", found="none", action="Send text_input instead"
            )
        for message in messages:
            if not all(isinstance(message.get(name), str) for name in ("role", "content")):
                raise RequestError("messages", expected="role and content as text", found=repr(message)[:60])
        self._check_bytes(sum(len(m["content"]) for m in messages), "messages")
        return self._chat_template.render(messages)

    def _tokenise(self, text: str, name: str, *, adds_special: bool) -> Int32Array:
        try:
            num_bytes = len(text.encode())
        except UnicodeEncodeError as error:
            raise RequestError(name, expected="Unicode text", found="a lone surrogate") from error
        self._check_bytes(num_bytes, name)
        return np.array(self._tokenizer.encode(text, add_special_tokens=adds_special).ids, np.int32)

    def _check_bytes(self, num_bytes: int, name: str) -> None:
        if num_bytes > self._most_bytes:
            raise RequestError(
                name,
                code=ErrorCode.TOO_LONG,
                expected=f"a prompt that fits {self._max_length} tokens",
                found=f"{num_bytes:,} bytes",
                action="Shorten it",
            )

    def _check_ids(self, ids: tuple[int, ...]) -> Int32Array:
        if len(ids) > self._max_length:
            raise RequestError(
                "input_ids",
                code=ErrorCode.TOO_LONG,
                expected=f"at most {self._max_length} tokens",
                found=f"{len(ids):,}",
                action="Shorten it",
            )
        for token in ids:
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < self._vocab_size:
                raise RequestError(
                    "input_ids", expected=f"ids from 0 to {self._vocab_size - 1}", found=repr(token)[:60]
                )
        return np.array(ids, np.int32)
