"""The tasks that questions belong to: Spec-Bench's six, and rows of their own beside them."""

from collections.abc import Iterable

MULTI_TURN = "multi-turn chat"
SPEC_BENCH_TASKS = (MULTI_TURN, "translation", "summarization", "qa", "math_reasoning", "rag")
"""The six tasks, in the order in which Spec-Bench's tables have them; the mean is over these."""
CHINESE, ARABIC, LONG_CONTEXT = "chinese", "arabic", "long context"
OWN_TASKS = (CHINESE, ARABIC, LONG_CONTEXT)
"""Where a draft is known to be weaker (V10): rows beside the mean, not in it."""

_MT_BENCH = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
_TITLES = {
    MULTI_TURN: "Multi-turn chat",
    "translation": "Translation",
    "summarization": "Summarization",
    "qa": "Question answering",
    "math_reasoning": "Mathematical reasoning",
    "rag": "Retrieval-augmented generation",
    CHINESE: "Chinese",
    ARABIC: "Arabic",
    LONG_CONTEXT: "Long context",
}


def task_of(category: str) -> str:
    """The task of a question's category: MT-Bench's eight are one task, any other category is a task of its own."""
    return MULTI_TURN if category in _MT_BENCH else category


def title_of(task: str) -> str:
    """How reports call a task."""
    return _TITLES.get(task, task)


def order_tasks(tasks: Iterable[str]) -> list[str]:
    """Spec-Bench's order, then others as they come, then our own rows; each once."""
    given = list(dict.fromkeys(tasks))
    others = [task for task in given if task not in SPEC_BENCH_TASKS and task not in OWN_TASKS]
    return [task for task in (*SPEC_BENCH_TASKS, *others, *OWN_TASKS) if task in given]


def tasks_of_mean(tasks: Iterable[str]) -> list[str]:
    """The tasks that the mean is over: those of Spec-Bench that ran, or all but our own, or all."""
    given = order_tasks(tasks)
    return (
        [task for task in given if task in SPEC_BENCH_TASKS]
        or [task for task in given if task not in OWN_TASKS]
        or given
    )
