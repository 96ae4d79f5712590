"""What figures mean beside each other: a configuration's accepted length and draft step beside the full head's, its
speed-up beside the greedy one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .draft_steps import DraftStep
from .lineup import Entry
from .summary import Figures

_FULL_HEAD = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Figures and their shares, None where there is nothing to compare with.

    ``accepted_share``: of the reference's accepted length on the same task and at the same temperature.
    ``greedy_share``: of the same configuration's speed-up on the same task at temperature 0.
    """

    figures: Figures
    accepted_share: float | None
    greedy_share: float | None


def find_references(entries: Sequence[Entry]) -> dict[str, str]:
    """By configuration that drafts with a model: the first of the same target whose draft has a full head and drafts
    alone."""
    found: dict[str, str] = {}
    for entry in entries:
        draft = entry.configuration.draft if entry.configuration else "off"
        if draft == "model" and entry.facts.head == _FULL_HEAD:
            found.setdefault(entry.baseline, entry.name)
    return {entry.name: found[entry.baseline] for entry in entries if entry.uses_model and entry.baseline in found}


def compare(figures: Sequence[Figures], entries: Sequence[Entry]) -> list[Compared]:
    """In the order of the figures."""
    references = find_references(entries)
    known = {(f.temperature, f.configuration, f.task): f for f in figures}
    compared = []
    for f in figures:
        reference = known.get((f.temperature, references.get(f.configuration, ""), f.task))
        greedy = known.get((0.0, f.configuration, f.task)) if f.temperature else None
        compared.append(
            Compared(
                figures=f,
                accepted_share=_share(f.accepted_length, reference.accepted_length if reference else 0.0),
                greedy_share=_share(f.speed_up, greedy.speed_up if greedy else 0.0),
            )
        )
    return compared


def share_steps(steps: Mapping[str, DraftStep], entries: Sequence[Entry]) -> dict[str, tuple[float, float]]:
    """By configuration: its draft's step over a token and over a level, as shares of the reference's."""
    references = find_references(entries)
    shares = {}
    for name, step in steps.items():
        full = steps.get(references.get(name, ""))
        if full is not None:
            shares[name] = (step.token_ms / full.token_ms, step.level_ms / full.level_ms)
    return shares


def _share(value: float, of: float) -> float | None:
    return value / of if of else None
