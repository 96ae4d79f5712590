"""Text that arrives in blocks of every size joins to the whole, without broken characters."""

import numpy as np
import pytest
from draftsmith.model_repo.runtime.draft_policy import FixedDraftSize

from tests.model_repo.decoding import make_engine, make_request, run, submit, tiny_tokenizer
from tests.model_repo.runtime.test_stops import PerfectDrafter
from tests.model_repo.toy_session import ToySession

PROMPT = (250, 251)
TEXTS = [
    " leading space,  two spaces\n\tand a tab ",
    "\U0001f600 emoji \U0001f468\u200d\U0001f469\u200d\U0001f467 family",
    "\u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \u0645\u0631\u062d\u0628\u0627",
]


class ScriptModel:
    """Writes a given text after the prompt, then the end token."""

    vocab_size = 300

    def __init__(self, ids):
        self._ids = [*ids, 2]

    def score(self, tokens):
        logits = np.zeros(self.vocab_size, np.float32)
        logits[self._ids[min(len(tokens) - len(PROMPT), len(self._ids) - 1)]] = 9
        return logits


def write(text, block, **sampling):
    ids = tiny_tokenizer().encode(text).ids
    engine = make_engine(
        ToySession(ScriptModel(ids)), drafter=PerfectDrafter([*PROMPT, *ids]), policy=FixedDraftSize(block - 1)
    )
    return run(engine, submit(engine, make_request(PROMPT, max_tokens=150, **sampling)))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("block", range(1, 7))
def test_the_pieces_join_to_the_text(text, block):
    answer = write(text, block)
    assert answer.text == text
    assert answer.last.finish_reason == "end_id"
    assert not any("\ufffd" in update.text for update in answer.updates)
    assert max(len(update.token_ids) for update in answer.updates) == block


@pytest.mark.parametrize("block", [1, 3, 6])
def test_a_stop_word_of_several_bytes_a_character_is_cut_whole(block):
    answer = write("one \U0001f468\u200d\U0001f469 two", block, stop_words=("\u200d\U0001f469",))
    assert answer.text == "one \U0001f468"
    assert answer.last.finish_reason == "stop_word"


@pytest.mark.parametrize("block", [1, 4])
def test_a_character_that_the_length_cuts_is_flushed_as_a_replacement(block):
    ids = tiny_tokenizer().encode("ab\U0001f600").ids
    engine = make_engine(
        ToySession(ScriptModel(ids)), drafter=PerfectDrafter([*PROMPT, *ids]), policy=FixedDraftSize(block - 1)
    )
    answer = run(engine, submit(engine, make_request(PROMPT, max_tokens=len(ids) - 1)))
    assert answer.text == tiny_tokenizer().decode(ids[:-1]) == "ab\ufffd"
    assert answer.last.finish_reason == "length"


def test_what_may_become_a_stop_word_is_held_back_until_it_is_clear():
    answer = write("a stop sign", 1, stop_words=("stopped",))
    assert answer.text == "a stop sign"
    shown = ""
    for update in answer.updates:
        shown += update.text
        assert not shown.endswith("sto")
