"""What the cells of an evaluation's tables say, for Markdown and HTML alike."""

from collections.abc import Mapping

from .comparison import Compared
from .configuration import Configuration
from .draft_steps import LEVEL_WIDTH, DraftStep
from .engine_facts import EngineFacts
from .lineup import Entry
from .summary import MEAN, OVERALL
from .tasks import title_of

SPEED_HEAD = (
    "task",
    "questions",
    "tokens/s",
    "speed-up",
    "decode tokens/s",
    "decode speed-up",
    "of greedy",
    "accepted length",
    "of full",
    "draft ms",
    "verify ms",
    "other ms",
    "mismatches",
)
ENGINE_HEAD = ("configuration", "engine", "head", "settings", "ranking recall@k", "draft's memory", "ranking's memory")
STEP_HEAD = ("draft step ms", "of full", f"level of {LEVEL_WIDTH} ms", "of full")
NOTHING = "-"


def describe_task(task: str) -> str:
    """A task's title; the two rows that sum up are called what they are."""
    return {MEAN: "Mean of tasks", OVERALL: "All questions"}.get(task) or title_of(task)


def describe_temperature(temperature: float) -> str:
    """``greedy`` or ``temperature 1``."""
    return f"temperature {temperature:g}" if temperature else "greedy"


def speed_cells(compared: Compared) -> list[str]:
    """The cells under ``SPEED_HEAD``."""
    f = compared.figures
    return [
        describe_task(f.task),
        str(f.num_questions),
        f"{f.tokens_per_second:.1f}",
        f"{f.speed_up:.2f}x",
        f"{f.decode_tokens_per_second:.1f}",
        f"{f.decode_speed_up:.2f}x",
        describe_share(compared.greedy_share),
        f"{f.accepted_length:.2f}",
        describe_share(compared.accepted_share),
        f"{f.draft_ms:.2f}",
        f"{f.verify_ms:.2f}",
        f"{f.other_ms:.2f}",
        str(f.num_mismatches),
    ]


def engine_cells(entry: Entry) -> list[str]:
    """The cells under ``ENGINE_HEAD``."""
    configuration, facts = entry.configuration, entry.facts
    settings = configuration.settings if configuration else "draft=off"
    return [
        entry.name,
        facts.label,
        describe_head(entry),
        settings,
        describe_recall(configuration, facts),
        describe_memory(entry),
        describe_ranking_memory(entry),
    ]


def step_cells(name: str, steps: Mapping[str, DraftStep], shares: Mapping[str, tuple[float, float]]) -> list[str]:
    """The cells under ``STEP_HEAD`` of a configuration."""
    if name not in steps:
        return [NOTHING] * len(STEP_HEAD)
    step, (token, level) = steps[name], shares.get(name, (None, None))
    return [f"{step.token_ms:.2f}", describe_share(token), f"{step.level_ms:.2f}", describe_share(level)]


def describe_share(share: float | None) -> str:
    """``98 %``, or that there is none."""
    return NOTHING if share is None else f"{share:.1%}"


def describe_head(entry: Entry) -> str:
    """``speculative``; ``scores alone`` where the ranking stands for the logits."""
    if not entry.uses_model:
        return NOTHING
    return "scores alone" if entry.facts.has_scores_alone else entry.facts.head


def describe_recall(configuration: Configuration | None, facts: EngineFacts) -> str:
    """``98.4 % (k = 2,048)`` at the configuration's k, or at the nearest k that was measured."""
    if configuration is None or configuration.draft in ("off", "ngram") or not facts.recall:
        return NOTHING
    wanted = facts.recall_k if facts.has_scores_alone else configuration.num_candidates or facts.recall_k
    k = min(facts.recall, key=lambda measured: abs(measured - wanted))
    return f"{facts.recall[k]:.1%} (k = {k:,})"


def describe_memory(entry: Entry) -> str:
    """``8.1 MB (5.8 %) + 0.4 MB a slot``: the draft's files beside the target's, and its cache of one request."""
    facts = entry.facts
    if not entry.uses_model:
        return "none"
    return f"{facts.draft_bytes / 1e6:.1f} MB ({facts.extra_share:.1%}) + {facts.slot_bytes / 1e6:.1f} MB a slot"


def describe_ranking_memory(entry: Entry) -> str:
    """``3.7 MB (2.7 %)`` of the draft's files, beside the target's."""
    facts = entry.facts
    if not entry.uses_model or not facts.ranking_bytes:
        return "none"
    return f"{facts.ranking_bytes / 1e6:.1f} MB ({facts.ranking_share:.1%})"
