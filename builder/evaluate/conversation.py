"""A question's turns as prompts: chat messages, or plain text for models without a chat template."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Exactly one of the two is given."""

    text: str | None = None
    messages: tuple[dict[str, str], ...] | None = None


@dataclass(slots=True)
class Conversation:
    """What was said so far."""

    is_chat: bool
    _said: list[str] = field(default_factory=list)

    def ask(self, turn: str) -> Prompt:
        """The prompt of the next turn; ``answer`` must follow before the one after it."""
        said = [*self._said, turn]
        if not self.is_chat:
            return Prompt(text="\n\n".join(said))
        roles = ("user", "assistant")
        messages = tuple({"role": roles[index % 2], "content": text} for index, text in enumerate(said))
        return Prompt(messages=messages)

    def answer(self, turn: str, text: str) -> None:
        """The turn was asked and answered so."""
        self._said += [turn, text]
