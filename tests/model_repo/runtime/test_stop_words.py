from draftsmith.model_repo.runtime.stop_words import StopScanner, StopWords
from hypothesis import given, settings
from hypothesis import strategies as st

TEXTS = st.text("ab", max_size=30)
WORDS = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=5)


def find_first_stop(text, words):
    """Where the text is cut: before the longest word that ends at the first place where any word ends."""
    for end in range(len(text) + 1):
        matches = [len(w) for w in words if text[:end].endswith(w)]
        if matches:
            return end - max(matches)
    return None


def scan(pieces, words):
    scanner = StopScanner(StopWords(words))
    sent = ""
    for piece in pieces:
        text, is_stopped = scanner.push(piece, is_counted=True)
        sent += text
        if is_stopped:
            return sent, True
    return sent + scanner.flush(), False


@settings(max_examples=300, deadline=None)
@given(TEXTS, WORDS, st.integers(1, 5))
def test_a_text_in_any_pieces_is_cut_where_the_whole_text_is(text, words, size):
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    cut = find_first_stop(text, words)
    assert scan(pieces, words) == ((text, False) if cut is None else (text[:cut], True))


def test_only_what_may_become_a_stop_word_is_held_back():
    scanner = StopScanner(StopWords(["</s>", "stop"]))
    assert scanner.push("a<", is_counted=True) == ("a", False)
    assert scanner.push("/x", is_counted=True) == ("</x", False)
    assert scanner.push("sst", is_counted=True) == ("s", False)
    assert scanner.flush() == "st"


def test_a_word_that_is_complete_too_early_is_passed_on():
    scanner = StopScanner(StopWords(["ab"]))
    assert scanner.push("ab", is_counted=False) == ("", False)  # sent with what follows
    assert scanner.push("c", is_counted=True) == ("abc", False)
    assert scanner.push("ab", is_counted=True) == ("", True)


def test_no_words_hold_nothing_back():
    assert not StopWords([])
    assert StopScanner(StopWords([])).push("anything", is_counted=True) == ("anything", False)
