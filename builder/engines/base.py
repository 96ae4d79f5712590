"""What an engine backend is: one protocol, its options and results. Backends are registered by name in ``engines``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from draftsmith.model_repo.contract.manifest import PRECISIONS, DraftEngine, KvCacheSpec, Precision

from ..checkpoint.source import Checkpoint
from ..draft.plan import DraftPlan
from ..errors import UsageError
from ..progress import Progress

DEFAULT_MAX_QUERY_LEN = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendStatus:
    """Whether a backend can build here.

    ``version`` is None where it cannot: ``reason`` says why, ``install`` is the command that helps.
    """

    name: str
    version: str | None
    reason: str = ""
    install: str = ""

    @property
    def is_available(self) -> bool:
        """True where engines can be built."""
        return self.version is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """What a user asks of an engine.

    ``max_batch``: slots; ``max_length``: prompt and output tokens of a request; ``max_query_len``: most tokens a row
    takes in one step (the prefill chunk). ``feature_layers``: layers whose inputs a draft reads, or (). ``draft``: the
    draft that is written beside the target, which then sets ``feature_layers``; None for none.
    ``num_threads``: for work at build time (calibration). ``error_budget`` and ``calibration_text``: INT8 only,
    None for the defaults.
    ``gpus``: targets of ahead-of-time builds ("sm86"). ``extras``: options of one backend; unknown ones are refused.
    """

    precision: Precision
    max_batch: int
    max_length: int
    max_query_len: int = DEFAULT_MAX_QUERY_LEN
    feature_layers: tuple[int, ...] = ()
    draft: DraftPlan | None = None
    num_threads: int = 2
    error_budget: float | None = None
    calibration_text: str | None = None
    max_kl: float | None = None
    min_top1: float | None = None
    gpus: tuple[str, ...] = ()
    extras: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_feature_layers(self) -> tuple[int, ...]:
        """Those of the draft, or what was asked for without one."""
        return self.feature_layers if self.draft is None else self.draft.feature_layers

    def check(self, checkpoint: Checkpoint, known_extras: tuple[str, ...] = ()) -> None:
        """Raise ``UsageError`` for a value that no backend could build."""
        if self.precision not in PRECISIONS:
            raise UsageError("precision", expected=" or ".join(PRECISIONS), found=repr(self.precision))
        limit = checkpoint.spec.max_positions
        for name, most in (("max_batch", 4096), ("max_length", limit), ("max_query_len", 8192)):
            value = getattr(self, name)
            if not 1 <= value <= most:
                raise UsageError(name, expected=f"1 to {most}", found=str(value))
        if self.draft is not None:
            self.draft.check()
        for layer in self.all_feature_layers:
            if not 0 <= layer < checkpoint.spec.num_layers:
                raise UsageError("feature_layers", expected=f"0 to {checkpoint.spec.num_layers - 1}", found=str(layer))
        for name in sorted(set(self.extras) - set(known_extras)):
            raise UsageError("extras", expected=", ".join(known_extras) or "none for this backend", found=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltEngine:
    """What a backend wrote into its folder; everything the manifest says of the engine itself.

    ``files``: names inside the folder, ``graph_file`` among them (what a session opens first). ``max_query_len`` is
    what the engine takes (at most what was asked). ``draft``: what was written of the draft.
    ``requires``: what the serving machine must have, by name.
    ``build``: options, versions and timings. ``quality``: the INT8 plan's figures, empty without.
    """

    backend: str
    backend_version: str
    precision: Precision
    graph_file: str
    files: tuple[str, ...]
    kv_cache: KvCacheSpec
    max_query_len: int
    min_query_len: int
    feature_layers: tuple[int, ...]
    requires: Mapping[str, str]
    build: Mapping[str, Any]
    quality: Mapping[str, Any]
    draft: DraftEngine | None = None


class EngineBuilder(Protocol):
    """Builds engines of one backend."""

    @property
    def name(self) -> str:
        """As in ``--backend`` and the manifest."""

    def available(self) -> BackendStatus:
        """Whether it can build here; imports nothing heavy."""

    def check(self, checkpoint: Checkpoint, options: BuildOptions) -> None:
        """Raise what ``build`` would raise before it writes anything; looks at no weights."""

    def build(self, checkpoint: Checkpoint, options: BuildOptions, folder: Path, *, progress: Progress) -> BuiltEngine:
        """Write the engine's files into the empty ``folder``.

        Raises ``UsageError`` for options it cannot serve, ``BackendError`` where it is not available and
        ``BuildError`` where building fails.
        """
