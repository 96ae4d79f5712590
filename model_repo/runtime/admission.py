"""From a request to a sequence: checks, tokens, seed. What cannot be served is refused here, early."""

import itertools
import secrets

from draftsmith.model_repo.contract.errors import ErrorCode, RequestError
from draftsmith.model_repo.contract.params import GenerationRequest
from tokenizers import Tokenizer

from .chat_template import ChatTemplate
from .chooser import TokenChooser
from .detokenizer import Detokenizer, TokenPieces
from .penalties import Penalties
from .prompt import PromptEncoder
from .request import OnUpdate
from .sequence import Sequence, SequenceParts
from .stop_words import StopScanner, StopWords
from .stream import AnswerStream


class Admission:
    """Makes sequences for one engine. Safe to use from many threads.

    Arguments:
        vocab_size: rows of the logits.
        max_length: prompt + output tokens of a request.
        end_ids: the model's end tokens, used where a request names none.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        chat_template: ChatTemplate | None,
        vocab_size: int,
        max_length: int,
        end_ids: tuple[int, ...],
    ) -> None:
        self._prompts = PromptEncoder(
            tokenizer, chat_template=chat_template, vocab_size=vocab_size, max_length=max_length
        )
        self._pieces = TokenPieces(tokenizer)
        self._vocab_size = vocab_size
        self._max_length = max_length
        self._end_ids = tuple(token for token in end_ids if token < vocab_size)
        self._ids = itertools.count(1)

    def admit(self, request: GenerationRequest, on_update: OnUpdate) -> Sequence:
        """Check a request and make its sequence.

        Raises:
            RequestError: it cannot be served.
        """
        request.validate()
        params = request.sampling
        prompt_ids = self._prompts.encode(request)
        self._check_length(len(prompt_ids), params.max_tokens)
        end_ids = self._end_ids if params.end_ids is None else self._check_end_ids(params.end_ids)
        bad = self._prompts.encode_words(params.bad_words)
        penalties = Penalties(params, prompt_ids, end_ids, bad)
        seed = secrets.randbits(64) if params.seed is None else params.seed
        answer = AnswerStream(Detokenizer(self._pieces, prompt_ids), StopScanner(StopWords(params.stop_words)))
        return Sequence(
            SequenceParts(
                request_id=next(self._ids),
                prompt_ids=prompt_ids,
                params=params,
                end_ids=frozenset(end_ids),
                chooser=TokenChooser(params, penalties, seed),
                answer=answer,
                on_update=on_update,
                is_streamed=request.stream,
            )
        )

    def _check_end_ids(self, end_ids: tuple[int, ...]) -> tuple[int, ...]:
        for token in end_ids:
            if token >= self._vocab_size:
                raise RequestError("end_id", expected=f"ids from 0 to {self._vocab_size - 1}", found=str(token))
        return end_ids

    def _check_length(self, prompt_len: int, max_tokens: int) -> None:
        if prompt_len + max_tokens > self._max_length:
            raise RequestError(
                "prompt + max_tokens",
                code=ErrorCode.TOO_LONG,
                expected=f"at most {self._max_length} tokens",
                found=f"{prompt_len} + {max_tokens}",
                action="Shorten the prompt or ask for fewer tokens",
            )
