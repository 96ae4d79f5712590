"""Finds stop words in a text that arrives in pieces, and says how much of its end may still become one.

An Aho-Corasick automaton over characters: one state, a few steps a character, however many words there are.
"""

from collections import deque
from collections.abc import Iterable


class StopWords:
    """The words of a request as an automaton; shared by nothing, changed by nothing."""

    def __init__(self, words: Iterable[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._fail = [0]
        self._match = [0]  # length of the longest word that ends in a state, 0 for none
        for word in words:
            self._add(word)
        self._link()

    def _add(self, word: str) -> None:
        state = 0
        for char in word:
            following = self._next[state].get(char)
            if following is None:
                following = self._next[state][char] = len(self._next)
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._fail.append(0)
                self._match.append(0)
            state = following
        self._match[state] = max(self._match[state], len(word))

    def _link(self) -> None:
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            self._match[state] = max(self._match[state], self._match[self._fail[state]])
            for char, following in self._next[state].items():
                self._fail[following] = self.advance(self._fail[state], char)
                queue.append(following)

    def __bool__(self) -> bool:
        return len(self._next) > 1

    def advance(self, state: int, char: str) -> int:
        """The state after one more character (0 is the start)."""
        while True:
            following = self._next[state].get(char)
            if following is not None:
                return following
            if state == 0:
                return 0
            state = self._fail[state]

    def held_len(self, state: int) -> int:
        """Characters at the end of the text so far that may be the start of a word."""
        return self._depth[state]

    def match_len(self, state: int) -> int:
        """Length of the longest word that the text so far ends with, 0 for none."""
        return self._match[state]


class StopScanner:
    """Passes text on, holding back what may be the start of a stop word; a completed word is cut off."""

    def __init__(self, words: StopWords) -> None:
        self._words = words
        self._state = 0
        self._held = ""

    def push(self, text: str, *, is_counted: bool) -> tuple[str, bool]:
        """Add text: (what may be sent now, whether a word is complete).

        With ``is_counted`` false a completed word is ignored (``min_tokens``). After a complete word nothing is held.
        """
        if not self._words:
            return text, False
        words, state = self._words, self._state
        for index, char in enumerate(text):
            state = words.advance(state, char)
            length = words.match_len(state)
            if length and is_counted:
                whole = self._held + text[: index + 1]
                self._held = ""
                return whole[: len(whole) - length], True
        self._state = state
        whole = self._held + text
        at = len(whole) - words.held_len(state)
        self._held = whole[at:]
        return whole[:at], False

    def flush(self) -> str:
        """What was held back, at the end of a text that no stop word ended."""
        held, self._held, self._state = self._held, "", 0
        return held
