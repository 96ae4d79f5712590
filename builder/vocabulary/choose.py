"""Static subsets: tokens by frequency in text (FR-Spec), or by how often the target prefers them (VocabTrim)."""

import json
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from ..checkpoint.source import Checkpoint
from ..errors import UsageError
from .hidden_states import HeadStates
from .passages import Passage
from .recall import probability_blocks

TokenIds = npt.NDArray[np.int32]
Frequencies = npt.NDArray[np.float64]


def corpus_frequencies(passages: Sequence[Passage], vocab_size: int) -> Frequencies:
    """How often each token stands in the text, [V]; tokens it lacks are ordered by id, which merge-based tokenizers
    number from frequent to rare."""
    ids = np.concatenate([passage.token_ids for passage in passages])
    counts = np.bincount(ids, minlength=vocab_size).astype(np.float64)
    return counts - np.arange(vocab_size) / (2.0 * vocab_size)


def target_frequencies(states: HeadStates, head: npt.NDArray[np.float32]) -> Frequencies:
    """How often each token is the most probable one at the text's positions, [V], plus its mean probability.

    The mean probability orders tokens that are never the first, and is the frequency prior's estimate.
    """
    counts, mass = np.zeros(len(head)), mean_probabilities(states, head)
    for _, probabilities in probability_blocks(states.hidden, head):
        counts += np.bincount(probabilities.argmax(axis=1), minlength=len(head))
    return counts + mass


def mean_probabilities(states: HeadStates, head: npt.NDArray[np.float32]) -> Frequencies:
    """Mean of the head's distributions over ``states``, [V]."""
    total = np.zeros(len(head))
    for _, probabilities in probability_blocks(states.hidden, head):
        total += probabilities.sum(axis=0, dtype=np.float64)
    return total / max(1, len(states))


def choose_subset(frequencies: Frequencies, size: int, kept: Collection[int]) -> TokenIds:
    """The ``size`` most frequent ids, ascending, int32; ``kept`` ids are always among them.

    Raises ``UsageError`` where ``size`` does not lie between the number of kept ids and the vocabulary's size.
    """
    least, most = max(1, len(set(kept))), len(frequencies)
    if not least <= size <= most:
        raise UsageError("--size", expected=f"{least} to {most} tokens", found=str(size))
    return np.sort(order_tokens(frequencies, kept)[:size]).astype(np.int32)


def order_tokens(frequencies: Frequencies, kept: Collection[int]) -> npt.NDArray[np.int64]:
    """All ids, the kept ones first, then from frequent to rare (the lowest id first among equals)."""
    raised = frequencies.copy()
    raised[list(kept)] = np.inf
    return np.argsort(-raised, kind="stable")


def special_ids(checkpoint: Checkpoint) -> set[int]:
    """Tokens a subset must not lose: end tokens, beginning, padding, and what the tokenizer calls special."""
    files = checkpoint.tokenizer
    added = json.loads(files.tokenizer_json).get("added_tokens") or []
    ids = {int(token["id"]) for token in added if token.get("special")}
    ids |= {*checkpoint.generation.end_ids}
    ids |= {value for value in (files.bos_id, files.eos_id, files.pad_id) if value is not None}
    return {value for value in ids if 0 <= value < checkpoint.spec.vocab_size}
