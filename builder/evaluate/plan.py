"""What an evaluation was asked for: options only. Opens no files."""

import math
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..ranges import check_range
from .configuration import Configuration

DEFAULT_MAX_TOKENS = 256
DEFAULT_TEMPERATURES = (0.0, 1.0)
DEFAULT_LONG_CONTEXT = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlan:
    """Options of ``build-engine evaluate``.

    ``questions``: files as Spec-Bench has them; ``prompts``: files with a prompt a line. ``questions_per_task`` None
    takes all. ``has_languages``: our Chinese and Arabic prompts too. ``long_context``: tokens of our long prompts, 0
    for none; ``long_questions``: how many of them, None as ``questions_per_task`` says. ``resume``: keep the questions
    that an earlier run into the same folder has done.
    """

    configurations: tuple[Configuration, ...]
    output: Path
    questions: tuple[Path, ...] = ()
    prompts: tuple[Path, ...] = ()
    questions_per_task: int | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    temperatures: tuple[float, ...] = DEFAULT_TEMPERATURES
    seed: int = 0
    has_languages: bool = True
    long_context: int = DEFAULT_LONG_CONTEXT
    long_questions: int | None = None
    num_threads: int | None = None
    num_slots: int = 1
    resume: bool = False

    def __post_init__(self) -> None:
        if self.questions_per_task is not None:
            check_range("--questions-per-task", self.questions_per_task, 1, 1_000_000)
        if self.long_questions is not None:
            check_range("--long-questions", self.long_questions, 1, 1_000_000)
        check_range("--max-tokens", self.max_tokens, 1, 1 << 24)
        check_range("--seed", self.seed, 0, 1 << 62)
        check_range("--slots", self.num_slots, 1, 1024)
        if self.num_threads is not None:
            check_range("--threads", self.num_threads, 1, 1024)
        if self.long_context:
            check_range("--long-context", self.long_context, 64, 1 << 24)
        for value in self.temperatures:
            if not math.isfinite(value) or not 0 <= value <= 100:
                raise UsageError("--temperature", expected="a number from 0 to 100", found=f"{value:g}")
        if not self.temperatures or len(set(self.temperatures)) < len(self.temperatures):
            found = ", ".join(f"{value:g}" for value in self.temperatures) or "none"
            raise UsageError("--temperature", expected="values that differ", found=found)
        if not self.questions and not self.prompts and not self.has_languages and not self.long_context:
            raise UsageError("--questions", expected="something to ask", found="nothing")
