"""Engines that score trees of one size whether or not they pay, so that heads are compared at equal settings.

The engine that serves grows its trees by what a step costs: with a cheaper head they are larger, and more is accepted.
"""

import importlib
from pathlib import Path
from typing import Any

from draftsmith.model_repo.contract.manifest import Manifest
from draftsmith.model_repo.runtime.combined_drafter import CombinedDrafter
from draftsmith.model_repo.runtime.draft_policy import FixedDraftSize
from draftsmith.model_repo.runtime.drafter import Drafter, NgramDrafter
from draftsmith.model_repo.runtime.engine import DecodeEngine, EngineConfig
from draftsmith.model_repo.runtime.loading import SESSION_MODULES, load_admission, read_manifest
from draftsmith.model_repo.runtime.model_drafter import ModelDrafter
from draftsmith.model_repo.runtime.requirements import check_requirements

_SESSIONS = "draftsmith.model_repo.runtime.sessions"


def load_fixed_engine(
    folder: Path, *, num_threads: int, num_slots: int, config: EngineConfig, num_nodes: int
) -> DecodeEngine:
    """As ``load_engine``, with trees of ``num_nodes`` (requests limit width and depth). Checksums are not compared.

    Raises:
        ManifestError, EngineError: the engine cannot be loaded.
    """
    manifest = read_manifest(folder)
    sessions = import_sessions(manifest)
    check_requirements(manifest, sessions.find_machine_facts())
    policy = FixedDraftSize(num_nodes)
    drafter: Drafter = NgramDrafter()
    session = sessions.open_session(folder, manifest, num_threads=num_threads, num_slots=num_slots)
    if manifest.draft is not None:
        draft = sessions.open_draft_session(
            folder, manifest, num_threads=num_threads, num_slots=num_slots, num_candidates=config.num_candidates
        )
        drafter = CombinedDrafter(ModelDrafter(draft, policy), policy)
    return DecodeEngine(session, load_admission(folder, manifest), config, drafter=drafter, policy=policy)


def import_sessions(manifest: Manifest) -> Any:
    """The module of the manifest's backend, see ``SESSION_MODULES``."""
    return importlib.import_module(f"{_SESSIONS}.{SESSION_MODULES[manifest.backend]}")
