"""Opens a packaged engine: engine.json, the files it names, the session of its backend, tokenizer and template."""

import hashlib
import importlib
import json
import os
import time
from pathlib import Path
from typing import Any

from draftsmith.model_repo.contract.errors import ManifestError
from draftsmith.model_repo.contract.manifest import MANIFEST_NAME, EngineFile, Manifest
from tokenizers import Tokenizer

from .adaptive import AdaptiveDraftSize
from .admission import Admission
from .calibration import measure_step_times
from .chat_template import ChatTemplate
from .combined_drafter import CombinedDrafter
from .cost_model import CostModel
from .draft_policy import DraftGuide
from .drafter import Drafter, NgramDrafter
from .engine import DecodeEngine, EngineConfig
from .errors import EngineError
from .model_drafter import ModelDrafter
from .requirements import check_requirements
from .sessions.base import DraftSession, TargetSession

SESSION_MODULES = {"onnxruntime": "onnxruntime", "tensorrt-rtx": "tensorrt_rtx"}
"""Backend name -> module of ``sessions``.

Each has ``open_session(folder, manifest, *, num_threads, num_slots)``, where drafts can be run
``open_draft_session`` with the same arguments and ``num_candidates`` (None: the engine's own), and
``find_machine_facts()``, what this machine has by the names in ``requires``.
"""


def load_engine(
    folder: Path, *, num_threads: int | None = None, num_slots: int | None = None, config: EngineConfig | None = None
) -> DecodeEngine:
    """Load the engine in ``folder`` (which holds engine.json). It is ready for ``start``.

    Arguments:
        num_threads: for one step; None takes the CPUs that this process may use.
        num_slots: requests served together; None takes the manifest's ``max_batch``.

    Raises:
        ManifestError: engine.json or a file that it names is missing, altered, or not what it says.
        EngineError: the backend is missing, the machine lacks what engine.json requires (told before a file is read),
            or the backend does not take the engine.
    """
    manifest = read_manifest(folder)
    sessions = _import_sessions(manifest)
    check_requirements(manifest, sessions.find_machine_facts())
    for entry in manifest.files:
        check_file(folder, entry)
    admission = load_admission(folder, manifest)
    threads = num_threads or len(os.sched_getaffinity(0))
    session: TargetSession = sessions.open_session(
        folder, manifest, num_threads=threads, num_slots=_check_slots(num_slots, manifest)
    )
    cost = CostModel()
    cost.calibrate(measure_step_times(session, time.perf_counter))
    policy = AdaptiveDraftSize(cost)
    config = config or EngineConfig()
    drafter = _open_drafter(
        sessions,
        folder,
        manifest,
        policy,
        num_threads=threads,
        num_slots=session.num_slots,
        num_candidates=config.num_candidates,
    )
    return DecodeEngine(session, admission, config, drafter=drafter, policy=policy)


def _open_drafter(
    sessions: Any,
    folder: Path,
    manifest: Manifest,
    guide: DraftGuide,
    *,
    num_threads: int,
    num_slots: int,
    num_candidates: int | None,
) -> Drafter:
    """Look-up alone, or together with the draft model that came with the engine."""
    if manifest.draft is None:
        return NgramDrafter()
    session: DraftSession = sessions.open_draft_session(
        folder, manifest, num_threads=num_threads, num_slots=num_slots, num_candidates=num_candidates
    )
    return CombinedDrafter(ModelDrafter(session, guide), guide)


def read_manifest(folder: Path) -> Manifest:
    """engine.json of a folder.

    Raises:
        ManifestError: it is missing, no JSON, or not a manifest.
    """
    path = folder / MANIFEST_NAME
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ManifestError(
            MANIFEST_NAME, expected="a readable file", found=error.strerror or "an error", where=str(path)
        ) from error
    except ValueError as error:
        raise ManifestError(MANIFEST_NAME, expected="JSON", found=str(error), where=str(path)) from error
    if not isinstance(values, dict):
        raise ManifestError(MANIFEST_NAME, expected="an object", found=type(values).__name__, where=str(path))
    return Manifest.from_dict(values)


def check_file(folder: Path, entry: EngineFile) -> None:
    """Raise ``ManifestError`` unless the file is there with the size and SHA-256 that the manifest gives."""
    path = folder / entry.name
    action = "Copy the package again, or rebuild it"
    try:
        with path.open("rb") as file:
            num_bytes = os.fstat(file.fileno()).st_size
            if num_bytes != entry.num_bytes:
                raise ManifestError(
                    entry.name,
                    expected=f"{entry.num_bytes:,} bytes",
                    found=f"{num_bytes:,}",
                    where=str(path),
                    action=action,
                )
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ManifestError(
            entry.name, expected="a readable file", found=error.strerror or "an error", where=str(path), action=action
        ) from error
    if digest != entry.sha256:
        raise ManifestError(
            entry.name, expected=f"SHA-256 {entry.sha256}", found=digest, where=str(path), action=action
        )


def load_admission(folder: Path, manifest: Manifest) -> Admission:
    """Tokenizer and chat template of a package, as what turns requests into sequences.

    Raises:
        ManifestError: a file cannot be read or is not what its name says.
    """
    path = folder / manifest.tokenizer_file
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise ManifestError(
            manifest.tokenizer_file, expected="a tokenizer.json", found=str(error)[:200], where=str(path)
        ) from error
    return Admission(
        tokenizer,
        chat_template=_load_template(folder, manifest),
        vocab_size=manifest.vocab_size,
        max_length=manifest.max_length,
        end_ids=tuple(manifest.end_ids),
    )


def _load_template(folder: Path, manifest: Manifest) -> ChatTemplate | None:
    if manifest.chat_template_file is None:
        return None
    path = folder / manifest.chat_template_file
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(
            manifest.chat_template_file, expected="UTF-8 text", found=str(error), where=str(path)
        ) from error
    # Templates add bos_token and eos_token to text without asking whether the model has them.
    return ChatTemplate(source, {"bos_token": "", "eos_token": "", **manifest.special_tokens})


def _check_slots(num_slots: int | None, manifest: Manifest) -> int:
    if num_slots is None:
        return manifest.max_batch
    if not 1 <= num_slots <= manifest.max_batch:
        raise EngineError(
            "num_slots",
            expected=f"1 to {manifest.max_batch}",
            found=str(num_slots),
            where="max_batch in engine.json",
            action="Ask for fewer slots, or rebuild with a larger --max-batch",
        )
    return num_slots


def _import_sessions(manifest: Manifest) -> Any:
    """The module of the manifest's backend."""
    module = SESSION_MODULES.get(manifest.backend)
    if module is None:
        raise ManifestError(
            "backend", expected=", ".join(SESSION_MODULES), found=repr(manifest.backend), where=MANIFEST_NAME
        )
    try:
        return importlib.import_module(f"{__package__}.sessions.{module}")
    except ImportError as error:
        raise EngineError(
            f"backend {manifest.backend}",
            expected="its runtime to be installed",
            found=str(error),
            action="Install draftsmith[serve]",
        ) from error
