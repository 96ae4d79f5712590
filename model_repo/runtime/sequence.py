"""One request while it is served: its tokens, its counts, and the one place where an answer ends."""

from dataclasses import dataclass

import numpy as np
from draftsmith.model_repo.contract.errors import RequestError
from draftsmith.model_repo.contract.params import SamplingParams
from draftsmith.model_repo.contract.tensors import FinishReason

from .chooser import TokenChooser
from .draft_tree import ROOT, DraftTree
from .evidence import AcceptanceCounts
from .request import OnUpdate, TokenLogprobs, Update
from .sessions.base import FloatArray, Int32Array
from .stream import AnswerStream


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceParts:
    """What a sequence is made of. ``prompt_ids`` int32 [n]."""

    request_id: int
    prompt_ids: Int32Array
    params: SamplingParams
    end_ids: frozenset[int]
    chooser: TokenChooser
    answer: AnswerStream
    on_update: OnUpdate
    is_streamed: bool


class Sequence:
    """Tokens of a request: the prompt, then what was emitted. Stepped by the loop's thread alone.

    Once the prompt is in the cache, all tokens but the last one are (``cached_len``): the last is the next step's first
    query. That holds whatever was drafted, accepted or cut.
    """

    def __init__(self, parts: SequenceParts) -> None:
        self.request_id = parts.request_id
        self.params = parts.params
        self.on_update = parts.on_update
        self.is_streamed = parts.is_streamed
        self.prompt_len = len(parts.prompt_ids)
        self.num_tokens = self.prompt_len
        self.num_prefilled = 0
        self.slot = -1
        self.num_target_steps = 0
        self.num_draft_tokens = 0
        self.num_accepted_draft_tokens = 0
        self.acceptance = AcceptanceCounts()
        self.is_cancelled = False
        self.is_ended = False
        self.finish_reason = FinishReason.RUNNING
        self.error: RequestError | None = None
        self._chooser = parts.chooser
        self._answer = parts.answer
        self._end_ids = parts.end_ids
        self._tokens = np.empty(self.prompt_len + parts.params.max_tokens, np.int32)
        self._tokens[: self.prompt_len] = parts.prompt_ids

    @property
    def seed(self) -> int | None:
        """The key of this request's noise, None where it is greedy."""
        return None if self.params.is_greedy else self._chooser.seed

    @property
    def tokens(self) -> Int32Array:
        """Prompt and output so far, int32 [num_tokens]."""
        return self._tokens[: self.num_tokens]

    @property
    def num_output_tokens(self) -> int:
        return self.num_tokens - self.prompt_len

    @property
    def num_tokens_left(self) -> int:
        """Tokens that may still be emitted."""
        return len(self._tokens) - self.num_tokens

    @property
    def is_prefilled(self) -> bool:
        return self.num_prefilled == self.prompt_len

    @property
    def cached_len(self) -> int:
        """Tokens of this sequence that its slot's cache holds."""
        return self.num_tokens - 1 if self.num_output_tokens else self.num_prefilled

    def take_block(self, logits: FloatArray, draft: DraftTree) -> list[int]:
        """Emit tokens from scored rows: choose, append, and go on along the branch that guessed the same.

        Arguments:
            logits: float32 [len(draft) + 1, V]; row 0 scores what follows the last token, row i + 1 what follows
                node i.
            draft: what was scored (empty for plain decoding).

        Returns the drafted nodes that were emitted, from the root on. A stop ends the walk, so nothing beyond it is
        ever counted. A row that cannot be used ends this sequence with an error.
        """
        path: list[int] = []
        at = ROOT
        while True:
            row = logits[at + 1]
            try:
                token = self._choose(row, draft, at)
            except RequestError as error:
                self.fail(error)
                break
            node = draft.find_child(at, token)
            is_over = not self._emit(token, row)
            if node != ROOT and not (is_over and self.finish_reason == FinishReason.END_ID):
                path.append(node)
            if is_over or node == ROOT:
                break
            at = node
        self.num_draft_tokens += len(draft)
        self.num_accepted_draft_tokens += len(path)
        return path

    def _choose(self, row: FloatArray, draft: DraftTree, at: int) -> int:
        """The token after node ``at``: the target's choice, or what keeps its distribution where drafts were drawn."""
        if draft.q is not None and at + 1 < len(draft):
            return self._chooser.choose_sampled(row, self.num_tokens, draft.token_ids[at + 1], draft.q[at + 1])
        return self._chooser.choose(row, self.num_tokens)

    def _emit(self, token: int, row: FloatArray) -> bool:
        """Append a chosen token; False where the answer ends with it."""
        if token in self._end_ids:
            self.finish(FinishReason.END_ID)
            return False
        self._tokens[self.num_tokens] = token
        self.num_tokens += 1
        self._chooser.append(token)
        is_counted = self.num_output_tokens >= self.params.min_tokens
        if self._answer.push(token, self._chooser.measure(row, token), is_counted=is_counted):
            self.finish(FinishReason.STOP_WORD)
            return False
        if not self.num_tokens_left:
            self.finish(FinishReason.LENGTH)
            return False
        return True

    def finish(self, reason: str) -> None:
        """End the answer; text held back is released unless a stop word cut it."""
        if self.is_ended:
            return
        self.is_ended = True
        self.finish_reason = reason
        if reason != FinishReason.STOP_WORD:
            self._answer.flush()

    def fail(self, error: RequestError) -> None:
        """End the answer with an error."""
        if not self.is_ended:
            self.is_ended = True
            self.error = error
            self._answer.flush()

    def take_update(self) -> Update | None:
        """What happened since the last call; None where there is nothing to say yet."""
        if not self.is_ended and not (self.is_streamed and self._answer.has_news):
            return None
        text, token_ids, logprobs = self._answer.take()
        return self._make_update(text, token_ids, logprobs)

    def _make_update(self, text: str, token_ids: tuple[int, ...], logprobs: TokenLogprobs | None) -> Update:
        return Update(
            text=text,
            token_ids=token_ids,
            finish_reason=self.finish_reason,
            is_final=self.is_ended,
            num_input_tokens=self.prompt_len,
            num_output_tokens=self.num_output_tokens,
            num_target_steps=self.num_target_steps,
            num_draft_tokens=self.num_draft_tokens,
            num_accepted_draft_tokens=self.num_accepted_draft_tokens,
            token_logprobs=logprobs,
            error=self.error,
        )
