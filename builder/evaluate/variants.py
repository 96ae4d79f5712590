"""An engine again with another head of its draft: the target's files are copied, only the draft is written anew."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from draftsmith.model_repo.contract.manifest import DraftEngine, Manifest

from ..checkpoint.source import Checkpoint
from ..draft.engine import TargetFiles, write_draft_engine
from ..draft.plan import DraftPlan
from ..errors import UsageError
from ..package.manifest import describe_files, read_manifest, write_manifest
from ..package.present import read_if_intact
from ..package.repository import staged_folder
from ..progress import Progress
from .engine_facts import DRAFT_PREFIX

_FINGERPRINT = "variant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """``plan``: the draft with its head. ``quality``: for the manifest. ``key``: what the plan was made of, so that an
    equal one is not written again."""

    plan: DraftPlan
    quality: Mapping[str, Any]
    key: str


def write_variant(base: Path, folder: Path, target: Checkpoint, variant: Variant, progress: Progress) -> Path:
    """The engine of ``base`` (a folder of engine.json) with the variant's draft, in ``folder``, which is returned.

    Where ``folder`` holds the same one it stays as it is.

    Raises:
        UsageError: the variant reads other layers of the target than the engine gives.
        BuildError: writing fails.
    """
    manifest = read_manifest(base)
    layers = variant.plan.feature_layers
    if tuple(manifest.feature_layers) != layers:
        expected = f"a draft that reads layers {manifest.feature_layers}"
        raise UsageError("draft", expected=expected, found=f"one that reads {list(layers)}", where=str(base))
    fingerprint = _hash(manifest, variant.key)
    present = read_if_intact(folder)
    if present is not None and present.build.get(_FINGERPRINT) == fingerprint:
        return folder
    own = [entry for entry in manifest.files if not entry.name.startswith(DRAFT_PREFIX)]
    with progress.stage(f"write {folder.name}") as stage, staged_folder(folder) as staged:
        for entry in own:
            shutil.copyfile(base / entry.name, staged / entry.name)  # ONNX refuses weights with several hard links
        draft, names = write_draft_engine(variant.plan, target, _target_files(manifest, staged), progress=progress)
        files = [*own, *describe_files(staged, names, progress)]
        changes = _with_draft(manifest, draft, variant.quality)
        write_manifest(staged, replace(changes, files=files, build={**manifest.build, _FINGERPRINT: fingerprint}))
        stage.note(f"{sum(entry.num_bytes for entry in files[len(own) :]) / 1e6:,.1f} MB beside the target")
    return folder


def _target_files(manifest: Manifest, folder: Path) -> TargetFiles:
    engine = manifest.build["engine"]
    is_native = engine["dialect"] == "native"
    return TargetFiles(
        folder=folder,
        graph_file=manifest.graph_file,
        storage=engine["storage"],
        is_native=is_native,
        max_length=manifest.max_length,
        max_query_len=manifest.max_query_len,
        calibration_text=None,
    )


def _with_draft(manifest: Manifest, draft: DraftEngine, quality: Mapping[str, Any]) -> Manifest:
    return replace(manifest, draft=replace(draft, quality=dict(quality)))


def _hash(manifest: Manifest, key: str) -> str:
    """Of the engine that is copied (its build's own fingerprint covers our code) and of the variant."""
    facts = [manifest.build.get("fingerprint"), [entry.sha256 for entry in manifest.files], key]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
