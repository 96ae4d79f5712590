"""The order of a build: checkpoint, engine, quality gate, manifest, package. Every step is another module's job."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftsmith.model_repo.contract.manifest import Manifest, Precision
from draftsmith.plugins.cpu_library import find_compiler

from .checkpoint.source import Checkpoint, open_checkpoint
from .drafting.locate import find_draft
from .drafting.trial import try_draft
from .engines import BuildOptions, get_builder
from .errors import CheckpointError, UsageError
from .package.assemble import ModelFacts, make_manifest, write_tokenizer_files
from .package.fingerprint import hash_checkpoint, hash_options
from .package.manifest import check_files, read_manifest, write_manifest
from .package.model_folder import VERSION_FOLDER, copy_engine, write_model_files
from .package.present import check_replaceable, read_if_intact
from .package.repository import staged_folder
from .package.space import check_disk, measure_files
from .plan import DEFAULT_MAX_LENGTH, BuildPlan
from .progress import Progress
from .quantize.engine_gate import MEASURED_BACKENDS, measure_engine
from .quantize.quality_gate import DEFAULT_MAX_KL, DEFAULT_MIN_TOP1, QualityLimits
from .spec.memory import estimate_memory

if TYPE_CHECKING:
    from .drafting.resolve import ResolvedDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltPackage:
    """One folder that a command made or found up to date."""

    folder: Path
    manifest: Manifest
    skipped: bool
    seconds: float

    @property
    def num_bytes(self) -> int:
        """Size of the engine's files."""
        return sum(entry.num_bytes for entry in self.manifest.files)

    @property
    def quality(self) -> dict[str, Any]:
        """What the quality gate measured, empty where none ran."""
        return self.manifest.quality

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        manifest = self.manifest
        return {
            "folder": str(self.folder),
            "precision": manifest.precision,
            "backend": manifest.backend,
            "num_bytes": self.num_bytes,
            "skipped": self.skipped,
            "seconds": round(self.seconds, 2),
            "quality": manifest.quality,
        }


def build(plan: BuildPlan, progress: Progress) -> list[BuiltPackage]:
    """Build every precision of the plan and package it; what is up to date is skipped.

    Raises ``CheckpointError``, ``BackendError``, ``UsageError`` or ``BuildError``; then the package at fault is not
    there (or is the old one, untouched).
    """

    def write(folder: Path, manifest: Manifest) -> None:
        write_model_files(folder, folder_name(plan, manifest.precision), manifest)

    return _build_each(plan, progress, VERSION_FOLDER, write)


def compile_only(plan: BuildPlan, progress: Progress) -> list[BuiltPackage]:
    """Like ``build``, but each folder is a bare engine: ``engine.json`` and the files that it names."""
    return _build_each(plan, progress, ".", lambda _folder, _manifest: None)


def folder_name(plan: BuildPlan, precision: Precision) -> str:
    """The model's name in Triton."""
    return plan.folder_of(precision).name


def package(engines: Sequence[Path], repository: Path, progress: Progress, *, force: bool) -> list[BuiltPackage]:
    """Package engine folders; raises ``ManifestError`` where a file is missing or not what its checksum says."""
    manifests = [read_manifest(engine) for engine in engines]
    names = [f"{m.model_name}_{m.precision}" for m in manifests]
    for name in names:
        if names.count(name) > 1:
            raise UsageError("engines", expected="one engine a model and precision", found=f"several of {name}")
    for engine, manifest in zip(engines, manifests, strict=True):
        check_files(engine, manifest, progress)
    packages = []
    for engine, manifest, name in zip(engines, manifests, names, strict=True):
        started = time.monotonic()
        destination = repository / name
        check_replaceable(destination, manifest.model_name, None, force=force, subfolder=VERSION_FOLDER)
        check_disk(destination, sum(entry.num_bytes for entry in manifest.files))
        with progress.stage(f"package {name}"), staged_folder(destination) as folder:
            copy_engine(engine, folder / VERSION_FOLDER, manifest)
            write_manifest(folder / VERSION_FOLDER, manifest)
            write_model_files(folder, name, manifest)
        packages.append(
            BuiltPackage(folder=destination, manifest=manifest, skipped=False, seconds=time.monotonic() - started)
        )
    return packages


def _build_each(
    plan: BuildPlan, progress: Progress, subfolder: str, finish: Callable[[Path, Manifest], None]
) -> list[BuiltPackage]:
    """Check everything that can be checked for all precisions, then build one after the other."""
    with open_checkpoint(plan.checkpoint) as checkpoint:
        text = _read_calibration_text(plan.calibration_text)
        options = {precision: _options(plan, precision, checkpoint, text) for precision in plan.precisions}
        for precision in plan.precisions:
            folder = plan.folder_of(precision)
            check_replaceable(folder, plan.name, plan.source_name, force=plan.force, subfolder=subfolder)
        checkpoint_hash = hash_checkpoint(plan.checkpoint, progress)
        draft_path = _find_draft(plan, checkpoint_hash)
        job = _Job(
            plan=plan,
            checkpoint=checkpoint,
            checkpoint_hash=checkpoint_hash,
            draft_path=draft_path,
            draft_hash=_hash_draft(plan, draft_path, progress),
            text=text,
            progress=progress,
        )
        return [job.run(options[precision], subfolder, finish) for precision in plan.precisions]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What the builds of one checkpoint share."""

    plan: BuildPlan
    checkpoint: Checkpoint
    checkpoint_hash: str
    draft_path: Path | None
    draft_hash: str
    text: str | None
    progress: Progress
    resolved: list["ResolvedDraft | None"] = field(default_factory=list)

    def run(self, options: BuildOptions, subfolder: str, finish: Callable[[Path, Manifest], None]) -> BuiltPackage:
        """Build one precision, unless the same one is there already."""
        started = time.monotonic()
        destination = self.plan.folder_of(options.precision)
        facts = self._facts(options)
        present = read_if_intact(destination / subfolder)
        if present is not None and not self.plan.force and present.build.get("fingerprint") == facts["fingerprint"]:
            return BuiltPackage(folder=destination, manifest=present, skipped=True, seconds=0.0)
        check_disk(destination, self._file_bytes(options))
        draft = self._resolve_draft()
        if draft is not None:
            options = replace(options, draft=draft.plan)
        title = f"build {destination.name}"
        with self.progress.stage(title) as stage, staged_folder(destination) as folder:
            engine_folder = folder / subfolder
            engine_folder.mkdir(exist_ok=True)
            manifest = self._build_engine(engine_folder, options, facts)
            manifest = self._try_draft(engine_folder, manifest, options)
            finish(folder, manifest)
            stage.note(f"{sum(f.num_bytes for f in manifest.files) / 1e6:,.1f} MB")
        return BuiltPackage(folder=destination, manifest=manifest, skipped=False, seconds=time.monotonic() - started)

    def _resolve_draft(self) -> "ResolvedDraft | None":
        """The draft that goes with every precision; opened and fitted once."""
        if not self.draft_hash:
            return None
        if not self.resolved:
            from .drafting.resolve import resolve_draft  # noqa: PLC0415 (most builds have no draft)

            found = resolve_draft(self.plan.draft, self.checkpoint, self.checkpoint_hash, self.text, self.progress)
            self.resolved.append(found)
        return self.resolved[0]

    def _try_draft(self, folder: Path, manifest: Manifest, options: BuildOptions) -> Manifest:
        """The manifest with what the draft gains here, measured with the finished engine."""
        resolved = self._resolve_draft()
        if resolved is None or manifest.draft is None:
            return manifest
        is_chat = manifest.chat_template_file is not None
        gain = try_draft(
            folder,
            is_chat=is_chat,
            num_threads=options.num_threads,
            progress=self.progress,
            choices=resolved.choices,
        )
        draft = replace(manifest.draft, quality={**resolved.facts, **gain})
        manifest = replace(manifest, draft=draft)
        write_manifest(folder, manifest)
        return manifest

    def _file_bytes(self, options: BuildOptions) -> int:
        """About what the engine's files will take; the draft as much as its checkpoint."""
        estimate = estimate_memory(
            self.checkpoint.spec,
            options.precision,
            max_batch=options.max_batch,
            max_length=options.max_length,
        )
        draft = 0 if self.draft_path is None else measure_files(self.draft_path)
        return estimate.file_bytes + draft + len(self.checkpoint.tokenizer.tokenizer_json)

    def _build_engine(self, folder: Path, options: BuildOptions, facts: dict[str, Any]) -> Manifest:
        builder = get_builder(self.plan.backend)
        engine = builder.build(self.checkpoint, options, folder, progress=self.progress)
        write_tokenizer_files(folder, self.checkpoint)
        model = ModelFacts(name=self.plan.name, max_batch=options.max_batch, max_length=options.max_length, build=facts)
        manifest = make_manifest(folder, model, self.checkpoint, engine, self.progress)
        write_manifest(folder, manifest)
        if options.precision == "int8" and manifest.backend in MEASURED_BACKENDS:
            manifest = replace(manifest, quality=self._measure(folder, manifest, options))
            write_manifest(folder, manifest)
        return manifest

    def _measure(self, folder: Path, manifest: Manifest, options: BuildOptions) -> dict[str, Any]:
        """What the quality gate finds; raises ``BuildError`` beyond the plan's limits."""
        plan = self.plan
        limits = QualityLimits(
            max_kl=DEFAULT_MAX_KL if plan.max_kl is None else plan.max_kl,
            min_top1=DEFAULT_MIN_TOP1 if plan.min_top1 is None else plan.min_top1,
        )
        draft = self._resolve_draft()
        return measure_engine(
            self.checkpoint,
            folder,
            manifest,
            limits,
            num_threads=options.num_threads,
            progress=self.progress,
            states=None if draft is None else draft.held_out,
        )

    def _facts(self, options: BuildOptions) -> dict[str, Any]:
        """What the manifest's ``build`` says besides the engine's own facts; no path, no time."""
        numbers = self.plan.numbers(options.precision) | {
            "max_length": options.max_length,
            "calibration_text": options.calibration_text,
            "draft_sha256": self.draft_hash,
        }
        versions = {name: version(name) for name in ("draftsmith", "onnx", "numpy")}
        versions["backend"] = get_builder(self.plan.backend).available().version or "none"
        if options.precision == "int8" and self.plan.backend == "onnxruntime":
            compiler = find_compiler() if self.plan.kernels != "onnxruntime" else None
            versions["compiler"] = compiler.version if compiler else "none"
        fingerprint = hash_options(self.checkpoint_hash, numbers | {"versions": versions, "name": self.plan.name})
        numbers["calibration_text"] = "given" if options.calibration_text is not None else "shipped"
        return {
            "fingerprint": fingerprint,
            "checkpoint": self.plan.source_name,
            "checkpoint_sha256": self.checkpoint_hash,
            "options": numbers,
            "versions": versions,
        }


def _find_draft(plan: BuildPlan, checkpoint_hash: str) -> Path | None:
    """The draft's folder or file; None without. Raises ``CheckpointError`` where it is not there."""
    path = find_draft(plan.draft, checkpoint_hash) if plan.backend == "onnxruntime" else None
    if path is not None and not path.exists():
        raise CheckpointError("draft", expected="a folder or file", found="none", where=str(path))
    vocabulary = plan.draft.vocabulary
    if vocabulary is not None and not vocabulary.is_file():
        raise UsageError("--draft-vocabulary", expected="a file", found="none", where=str(vocabulary))
    return path


def _hash_draft(plan: BuildPlan, path: Path | None, progress: Progress) -> str:
    """Of the draft's files and of the file of its vocabulary; "" without."""
    if path is None:
        return ""
    vocabulary = plan.draft.vocabulary
    return hash_checkpoint(path, progress) + (hash_checkpoint(vocabulary, progress) if vocabulary else "")


def _options(plan: BuildPlan, precision: Precision, checkpoint: Checkpoint, text: str | None) -> BuildOptions:
    """The engine's options, checked against the model; a length beyond the model's own is refused."""
    limit = checkpoint.spec.max_positions
    max_length = min(DEFAULT_MAX_LENGTH, limit) if plan.max_length is None else plan.max_length
    if max_length > limit:
        raise UsageError("--max-length", expected=f"at most the model's {limit:,} positions", found=f"{max_length:,}")
    options = BuildOptions(
        precision=precision,
        max_batch=plan.max_batch,
        max_length=max_length,
        max_query_len=min(plan.max_query_len, max_length),
        calibration_text=text if precision == "int8" else None,
        error_budget=plan.error_budget,
        max_kl=plan.max_kl,
        min_top1=plan.min_top1,
        gpus=plan.gpus,
        extras={"kernels": plan.kernels} if plan.backend == "onnxruntime" else {},
    )
    get_builder(plan.backend).check(checkpoint, options)
    return options


def _read_calibration_text(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError("--calibration-text", expected="a file", found="none", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            "--calibration-text", expected="UTF-8", found=f"byte {error.start} is not", where=str(path)
        ) from error
    if not text.strip():
        raise UsageError("--calibration-text", expected="some text", found="an empty file", where=str(path))
    return text
