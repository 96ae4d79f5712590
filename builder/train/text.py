"""Training text that the target makes itself: what it is asked to write, what is kept, and where it is stored.

A chat model writes the user's turns too (from the chat prefix and perhaps a first word or a few, sampled) and answers
them, greedily or sampled; a base model goes on from the same beginnings. No outside text enters.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from draftsmith.model_repo.contract.errors import DraftsmithError
from draftsmith.model_repo.runtime.chat_template import ChatTemplate

from ..checkpoint.source import Checkpoint
from ..checkpoint.tokenizer import TokenizerFiles, load_tokenizer
from ..errors import CheckpointError
from .generation import ASSISTANT, OPENING, USER, GeneratedText, Script, WritingPlan
from .openings import LONG, SHORT

SHARE_GREEDY = 0.5
"""Rows whose answers are greedy; all other temperatures are spread over 0.6 to 1."""
SHARE_OPENINGS, SHARE_WORDS, SHARE_LATER_WORDS = 0.55, 0.25, 0.5
"""User turns that begin with an opening, with a word of the vocabulary; later turns that begin with either."""
SHARE_WITH_TEXT, LEAST_WITH_TEXT = 0.5, 1024
"""Rows of at least so many tokens whose first question carries a text."""
LONGEST_USER_TURN, LONGEST_ANSWER = 160, 700
LOOP_WINDOW, LOOP_DISTINCT = 96, 24
"""A row is cut behind the first window of this many tokens with fewer distinct ones."""
LEAST_LENGTH = 64
_USER, _ANSWER, _SECOND = "\x02question\x03", "\x02answer\x03", "\x02second\x03"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingText:
    """Rows of text: ``token_ids`` int32 [N, T], ``roles`` uint8 [N, T], ``lengths`` int32 [N] (tokens that count),
    ``temperatures`` float32 [N] of the answers."""

    token_ids: npt.NDArray[np.int32]
    roles: npt.NDArray[np.uint8]
    lengths: npt.NDArray[np.int32]
    temperatures: npt.NDArray[np.float32]

    @property
    def num_tokens(self) -> int:
        """Tokens that count."""
        return int(self.lengths.sum())

    def take(self, rows: npt.NDArray[np.int64]) -> "TrainingText":
        """The given rows."""
        return TrainingText(
            token_ids=self.token_ids[rows],
            roles=self.roles[rows],
            lengths=self.lengths[rows],
            temperatures=self.temperatures[rows],
        )

    def save(self, path: Path) -> None:
        """As ``.npz``, written beside and renamed."""
        part = path.with_name(path.name + ".part")
        with part.open("wb") as file:
            np.savez(
                file, token_ids=self.token_ids, roles=self.roles, lengths=self.lengths, temperatures=self.temperatures
            )
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> "TrainingText":
        """Inverse of ``save``."""
        with np.load(path) as arrays:
            return cls(**{name: arrays[name] for name in ("token_ids", "roles", "lengths", "temperatures")})


def join_texts(texts: list[TrainingText]) -> TrainingText:
    """All rows of ``texts``."""
    names = ("token_ids", "roles", "lengths", "temperatures")
    return TrainingText(**{name: np.concatenate([getattr(text, name) for text in texts]) for name in names})


def build_script(checkpoint: Checkpoint) -> Script:
    """The forced tokens of a checkpoint: from its chat template, or its first token alone."""
    files, ends = checkpoint.tokenizer, checkpoint.generation.end_ids
    if files.chat_template is None:
        if files.bos_id is None:
            raise CheckpointError(
                "training text",
                expected="a chat template or a first token to start from",
                found="neither",
                where=str(checkpoint.path),
            )
        return Script(opening=[files.bos_id], before_user=[], before_assistant=[], end_ids=ends, has_turns=False)
    return _chat_script(files, ends, str(checkpoint.path))


def _chat_script(files: TokenizerFiles, ends: tuple[int, ...], where: str) -> Script:
    """Cut a rendered example at its contents."""
    tokenizer = load_tokenizer(files.tokenizer_json, where)
    messages = [
        {"role": "user", "content": _USER},
        {"role": "assistant", "content": _ANSWER},
        {"role": "user", "content": _SECOND},
    ]
    try:
        text = ChatTemplate(files.chat_template or "", files.special_tokens).render(
            messages, add_generation_prompt=False
        )
    except DraftsmithError as error:
        raise CheckpointError("chat template", expected="one that renders", found=str(error), where=where) from error
    opening, _, rest = text.partition(_USER)
    to_answer, _, rest = rest.partition(_ANSWER)
    to_user = rest.partition(_SECOND)[0]
    parts = [tokenizer.encode(part, add_special_tokens=False).ids for part in (opening, to_answer, to_user)]
    for part in parts[1:]:
        if not part or part[0] not in ends:
            raise CheckpointError(
                "chat template", expected=f"turns that end with one of {list(ends)}", found=str(part[:3]), where=where
            )
    end_ids = (parts[1][0], *[end for end in ends if end != parts[1][0]])
    return Script(
        opening=parts[0], before_assistant=parts[1][1:], before_user=parts[2][1:], end_ids=end_ids, has_turns=True
    )


@dataclass(frozen=True, slots=True)
class Beginnings:
    """Token ids with which user turns may begin: ``short`` and ``long`` openings, ``words`` of the vocabulary."""

    short: list[list[int]]
    long: list[list[int]]
    words: list[list[int]]


def find_beginnings(files: TokenizerFiles, where: str) -> Beginnings:
    """The openings as a tokenizer cuts them, and every token that is a word, or the start of one, in any script."""
    tokenizer = load_tokenizer(files.tokenizer_json, where)

    def encode(texts: tuple[str, ...]) -> list[list[int]]:
        found = (tokenizer.encode(text, add_special_tokens=False).ids for text in texts)
        return [ids for ids in found if ids]

    ids = [[token] for token in range(tokenizer.get_vocab_size())]
    words = [one for one, text in zip(ids, tokenizer.decode_batch(ids), strict=True) if text.isalpha()]
    return Beginnings(encode(SHORT), encode(LONG), words)


def draw_plan(
    script: Script, beginnings: Beginnings, batch: int, length: int, random: np.random.Generator
) -> WritingPlan:
    """How a batch of rows of ``length`` tokens is written. Rows that are long enough have texts in their questions."""
    temperatures, limits = np.empty((3, batch), np.float32), np.empty((3, batch), np.int64)
    answers = 0.6 + 0.4 * random.random(batch)
    answers[random.random(batch) < SHARE_GREEDY] = 0.0
    temperatures[ASSISTANT] = answers
    temperatures[[OPENING, USER]] = 0.6 + 0.4 * random.random(batch)
    limits[OPENING] = LONGEST_USER_TURN if script.has_turns else random.integers(8, LONGEST_USER_TURN, batch)
    limits[USER], limits[ASSISTANT] = LONGEST_USER_TURN, LONGEST_ANSWER if script.has_turns else 1 << 30
    first = [_draw_words(beginnings, random) for _ in range(batch)]
    if length >= LEAST_WITH_TEXT:
        for row in np.nonzero(random.random(batch) < SHARE_WITH_TEXT)[0]:
            first[row] = _pick(beginnings.long, random)
            limits[OPENING, row] = random.integers(length // 4, length * 3 // 5)
    later = [_draw_words(beginnings, random) if random.random() < SHARE_LATER_WORDS else [] for _ in range(batch)]
    return WritingPlan(
        temperatures=torch.from_numpy(temperatures),
        limits=torch.from_numpy(limits),
        first_words=first,
        later_words=later,
    )


def _draw_words(beginnings: Beginnings, random: np.random.Generator) -> list[int]:
    """An opening, a word, or nothing."""
    kind = random.random()
    if kind < SHARE_OPENINGS:
        return _pick(beginnings.short, random)
    return _pick(beginnings.words, random) if kind < SHARE_OPENINGS + SHARE_WORDS else []


def _pick(lists: list[list[int]], random: np.random.Generator) -> list[int]:
    return lists[random.integers(len(lists))] if lists else []


def select_rows(text: GeneratedText, script: Script, temperatures: npt.NDArray[np.float32]) -> TrainingText:
    """Cut rows where they are over or turn in a circle; drop those that are then too short."""
    ids = text.token_ids
    lengths = np.full(len(ids), ids.shape[1], np.int32)
    if not script.has_turns:
        ended = np.isin(ids[:, 1:], list(script.end_ids))
        lengths = np.where(ended.any(axis=1), ended.argmax(axis=1) + 2, lengths).astype(np.int32)
    for start in range(0, ids.shape[1] - LOOP_WINDOW + 1, LOOP_WINDOW // 2):
        window = np.sort(ids[:, start : start + LOOP_WINDOW], axis=1)
        distinct = (np.diff(window, axis=1) != 0).sum(axis=1) + 1
        end = start + LOOP_WINDOW
        lengths = np.where(distinct < LOOP_DISTINCT, np.minimum(lengths, end), lengths).astype(np.int32)
    rows = np.nonzero(lengths >= min(LEAST_LENGTH, ids.shape[1]))[0]
    whole = TrainingText(token_ids=ids, roles=text.roles, lengths=lengths, temperatures=temperatures)
    return whole.take(rows)
