"""One way of drafting to be measured: which engine, and what its requests ask of the drafter. Opens no files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError

PLAIN = "plain"
"""Name of the baseline, decoding without drafts; no configuration may take it."""
DRAFTS = ("auto", "model", "ngram", "off")
TREES = ("adaptive", "fixed")
_NUMBERS = {"width": (1, 16), "depth": (0, 64), "nodes": (0, 64), "k": (1, 1 << 20)}
_OPTION = "--config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A name in the report, the folder of an engine.json, and how requests draft.

    ``draft``: one of ``DRAFTS``. ``width``: branches followed a level; ``depth``: tokens of the longest branch;
    ``nodes``: tokens of the tree; ``num_candidates``: tokens of the speculative vocabulary with exact logits (the
    option's ``k``). None takes the engine's. ``has_fixed_trees``: every tree has ``nodes`` tokens, whether that pays or
    not; width, depth and nodes must then be given.
    """

    name: str
    folder: Path
    draft: str = "auto"
    width: int | None = None
    depth: int | None = None
    nodes: int | None = None
    num_candidates: int | None = None
    has_fixed_trees: bool = False

    def __post_init__(self) -> None:
        if self.has_fixed_trees and (None in (self.width, self.depth) or not self.nodes):
            raise UsageError(_OPTION, expected="width, depth and nodes beside tree=fixed", found=self.settings)

    @property
    def fixed_nodes(self) -> int | None:
        """Tokens of every tree, None where they are as many as pay."""
        return self.nodes if self.has_fixed_trees else None

    @property
    def settings(self) -> str:
        """What differs from the engine's defaults: ``draft=model, depth=5``."""
        given = {"width": self.width, "depth": self.depth, "nodes": self.nodes, "k": self.num_candidates}
        facts = [f"draft={self.draft}", *(f"{name}={value}" for name, value in given.items() if value is not None)]
        if self.has_fixed_trees:
            facts.append("tree=fixed")
        return ", ".join(facts)


def parse_configurations(texts: Sequence[str]) -> tuple[Configuration, ...]:
    """Each ``NAME=FOLDER[,key=value...]``; names must differ.

    Raises:
        UsageError: no text, an unknown key, a value out of range, a name twice.
    """
    if not texts:
        raise UsageError(_OPTION, expected="at least one NAME=ENGINE_FOLDER", found="none")
    configurations = tuple(parse_configuration(text) for text in texts)
    names = [configuration.name for configuration in configurations]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(_OPTION, expected="names that differ", found=f"{name!r} twice")
    return configurations


def parse_configuration(text: str) -> Configuration:
    """``NAME=ENGINE_FOLDER[,draft=auto|model|ngram|off][,width=N][,depth=N][,nodes=N][,k=N][,tree=adaptive|fixed]``.

    A folder's name may have commas: what has no ``=`` belongs to the path before it.

    Raises:
        UsageError: as ``parse_configurations``.
    """
    name, mark, rest = text.partition("=")
    if not mark or not name.strip() or not rest:
        raise UsageError(_OPTION, expected="NAME=ENGINE_FOLDER[,key=value...]", found=repr(text))
    if name.strip() == PLAIN:
        raise UsageError(_OPTION, expected=f"a name other than {PLAIN}, the baseline's", found=repr(text))
    parts = rest.split(",")
    while len(parts) > 1 and "=" not in parts[1]:
        parts[:2] = [",".join(parts[:2])]
    values = _read_values(parts[1:])
    return Configuration(
        name=name.strip(),
        folder=Path(parts[0]),
        draft=values.get("draft", "auto"),
        width=_number(values, "width"),
        depth=_number(values, "depth"),
        nodes=_number(values, "nodes"),
        num_candidates=_number(values, "k"),
        has_fixed_trees=values.get("tree") == "fixed",
    )


def _read_values(parts: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in parts:
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in ("draft", "tree", *_NUMBERS):
            raise UsageError(_OPTION, expected=f"the keys draft, {', '.join(_NUMBERS)}, tree", found=repr(part))
        if key in values:
            raise UsageError(_OPTION, expected=f"{key} once", found="it twice")
        values[key] = value
    for key, known in (("draft", DRAFTS), ("tree", TREES)):
        if values.get(key, known[0]) not in known:
            raise UsageError(_OPTION, expected=f"{key}={'|'.join(known)}", found=repr(values[key]))
    return values


def _number(values: dict[str, str], key: str) -> int | None:
    if key not in values:
        return None
    low, high = _NUMBERS[key]
    text = values[key]
    if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
        raise UsageError(_OPTION, expected=f"{key} from {low} to {high:,}", found=repr(text))
    return int(text)
