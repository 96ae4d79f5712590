"""One question under every configuration: turn by turn, each configuration in turn, so that drift hits all alike."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .conversation import Conversation, Prompt
from .lineup import Entry
from .questions import Question
from .rows import Row
from .runs import Answer, Sampling

PAUSE_SECONDS = 0.1
"""Between two engines: until the threads of the one before have stopped spinning."""

Ask = Callable[[Entry, Prompt, Sampling], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What is asked: ``turn`` says who begins (it moves on, so that nobody is always first)."""

    question: Question
    sampling: Sampling
    turn: int = 0


def run_round(round_: Round, entries: Sequence[Entry], ask: Ask) -> list[Row]:
    """A row an entry, in the entries' order.

    Later turns go on from the baseline's answer, so that all have the same prompts whatever they answered.

    Raises:
        TooLongError: an engine has no room for the question.
    """
    question = round_.question
    talks = {entry.baseline: Conversation(entry.facts.is_chat) for entry in entries}
    answers: dict[str, list[Answer]] = {entry.name: [] for entry in entries}
    start = round_.turn % len(entries)
    order = [*entries[start:], *entries[:start]]
    for turn in question.turns:
        prompts = {name: talk.ask(turn) for name, talk in talks.items()}
        for entry in order:
            answers[entry.name].append(ask(entry, prompts[entry.baseline], round_.sampling))
        for name, talk in talks.items():
            talk.answer(turn, answers[name][-1].text)
    return [make_row(round_, entry, answers[entry.name], answers[entry.baseline]) for entry in entries]


def make_row(round_: Round, entry: Entry, answers: Sequence[Answer], plain: Sequence[Answer]) -> Row:
    """The turns of a question added up and compared with plain decoding's."""
    question = round_.question
    return Row(
        task=question.task,
        category=question.category,
        question_id=question.question_id,
        configuration=entry.name,
        baseline=entry.baseline,
        temperature=round_.sampling.temperature,
        seed=round_.sampling.seed,
        num_turns=len(answers),
        num_prompt_tokens=sum(answer.num_prompt_tokens for answer in answers),
        num_tokens=sum(len(answer.token_ids) for answer in answers),
        seconds=sum(answer.seconds for answer in answers),
        num_decoded=sum(answer.num_decoded for answer in answers),
        decode_seconds=sum(answer.decode_seconds for answer in answers),
        num_steps=sum(answer.num_steps for answer in answers),
        num_drafted=sum(answer.num_drafted for answer in answers),
        num_accepted=sum(answer.num_accepted for answer in answers),
        draft_ms=sum(answer.draft_ms for answer in answers),
        verify_ms=sum(answer.verify_ms for answer in answers),
        other_ms=sum(answer.other_ms for answer in answers),
        first_difference=find_difference([a.token_ids for a in answers], [a.token_ids for a in plain]),
        accepted_counts=add_counts([answer.accepted_counts for answer in answers]),
    )


def find_difference(answers: Sequence[Sequence[int]], plain: Sequence[Sequence[int]]) -> int:
    """Position of the first token that differs, counted over all turns; -1 where all are equal."""
    before = 0
    for answer, expected in zip(answers, plain, strict=True):
        for index, (token, right) in enumerate(zip(answer, expected, strict=False)):
            if token != right:
                return before + index
        if len(answer) != len(expected):
            return before + min(len(answer), len(expected))
        before += len(expected)
    return -1


def add_counts(counts: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Histograms of different lengths, added."""
    size = max((len(part) for part in counts), default=0)
    return tuple(sum(part[index] for part in counts if index < len(part)) for index in range(size))


class Pacer:
    """Asks engines, with a pause whenever another one than before is asked."""

    def __init__(
        self,
        answer: Ask,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._answer = answer
        self._pause = pause
        self._last: object = None

    def __call__(self, entry: Entry, prompt: Prompt, sampling: Sampling) -> Answer:
        if self._last not in (None, entry.engine_key):
            self._pause(PAUSE_SECONDS)
        self._last = entry.engine_key
        return self._answer(entry, prompt, sampling)
