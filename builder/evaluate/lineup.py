"""Everything that answers: the configurations, a baseline for each target, and the engines behind them."""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from ..progress import Progress
from .configuration import PLAIN, Configuration
from .conversation import Conversation
from .engine_facts import EngineFacts, read_facts
from .runs import OpenEngine

EngineKey = tuple[Path, int | None, int | None]
"""Folder, candidates, nodes of fixed trees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the comparison; ``configuration`` None is plain decoding, ``baseline`` the name of its plain line."""

    name: str
    baseline: str
    configuration: Configuration | None
    facts: EngineFacts

    @property
    def engine_key(self) -> EngineKey:
        """Entries with the same key share an engine."""
        asked = self.configuration
        folder = self.facts.folder.resolve()
        return (folder, None, None) if asked is None else (folder, asked.num_candidates, asked.fixed_nodes)

    @property
    def is_baseline(self) -> bool:
        """True for plain decoding."""
        return self.configuration is None

    @property
    def uses_model(self) -> bool:
        """True where a draft model takes part."""
        return (
            self.configuration is not None and self.configuration.draft not in ("off", "ngram") and self.facts.has_draft
        )


def make_entries(configurations: Iterable[Configuration]) -> tuple[Entry, ...]:
    """The baselines first, then the configurations; those of equal targets share a baseline.

    Raises:
        UsageError, ManifestError: an engine is missing or has not what is asked of it.
    """
    given = [(configuration, read_facts(configuration)) for configuration in configurations]
    targets: dict[tuple[str, ...], EngineFacts] = {}
    for _, facts in given:
        targets.setdefault(facts.target_key, facts)
    names = _name_baselines(list(targets.values()))
    baselines = dict(zip(targets, names, strict=True))
    plain = [
        Entry(name=baselines[key], baseline=baselines[key], configuration=None, facts=facts)
        for key, facts in targets.items()
    ]
    others = [
        Entry(name=c.name, baseline=baselines[facts.target_key], configuration=c, facts=facts) for c, facts in given
    ]
    return (*plain, *others)


@dataclass(slots=True)
class Engines:
    """The engines of the entries, open while the context is."""

    num_threads: int | None
    num_slots: int
    _open: dict[EngineKey, OpenEngine] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def load(self, entries: Iterable[Entry], progress: Progress) -> None:
        """Load and warm up what the entries need, each engine once."""
        for entry in sorted(entries, key=lambda entry: entry.is_baseline):  # a baseline takes what is open
            _, candidates, fixed_nodes = entry.engine_key
            if self._key(entry) not in self._open:
                with progress.stage(f"load {entry.facts.label} ({entry.facts.folder})"):
                    engine = OpenEngine(
                        entry.facts.folder,
                        num_threads=self.num_threads,
                        num_slots=self.num_slots,
                        num_candidates=candidates,
                        fixed_nodes=fixed_nodes,
                    )
                    self._stack.callback(engine.close)
                    self._open[entry.engine_key] = engine
            engine = self.of(entry)
            engine.warm_up(Conversation(entry.facts.is_chat).ask("Hello"), entry.configuration)

    def of(self, entry: Entry) -> OpenEngine:
        """The engine that answers for an entry."""
        return self._open[self._key(entry)]

    def _key(self, entry: Entry) -> EngineKey:
        """A baseline takes any engine of its folder that is open: plain decoding has no candidates."""
        if entry.is_baseline:
            return next((key for key in self._open if key[0] == entry.engine_key[0]), entry.engine_key)
        return entry.engine_key

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _name_baselines(facts: list[EngineFacts]) -> list[str]:
    """``plain``, or with several targets ``plain (smollm2 int8)``, by folder where that does not tell them apart."""
    if len(facts) == 1:
        return [PLAIN]
    labels = [f.label for f in facts]
    return [f"{PLAIN} ({f.label if labels.count(f.label) == 1 else f.folder})" for f in facts]
