"""The embedded default backend: the step graph in ONNX Runtime's dialect, float or INT8."""

import time
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..checkpoint.source import Checkpoint
from ..draft.engine import TargetFiles, write_draft_engine
from ..errors import BackendError, BuildError
from ..graph.check import check_graph
from ..graph.target_graph import GraphOptions, cache_capacity, write_target_graph
from ..progress import Progress
from ..spec.cache import make_cache_spec
from . import native_kernels
from .base import BackendStatus, BuildOptions, BuiltEngine

PACKAGE = "onnxruntime"
LEAST_VERSION = (1, 32)
MIN_QUERY_LEN = 2
"""See ``model_repo.runtime.sessions.onnxruntime``: a lone token is run with a dummy so that its bits never differ."""


class OnnxRuntimeBuilder:
    """See ``EngineBuilder``."""

    @property
    def name(self) -> str:
        """As in ``--backend``."""
        return "onnxruntime"

    def available(self) -> BackendStatus:
        """See ``EngineBuilder``."""
        least = ".".join(map(str, LEAST_VERSION))
        install = f'pip install "{PACKAGE}>={least}"'
        try:
            found = version(PACKAGE)
        except PackageNotFoundError:
            return BackendStatus(name=self.name, version=None, reason="onnxruntime is not installed", install=install)
        if tuple(int(part) for part in found.split(".")[:2]) < LEAST_VERSION:
            reason = f"onnxruntime {found} is older than {least}"
            return BackendStatus(name=self.name, version=None, reason=reason, install=install)
        return BackendStatus(name=self.name, version=found)

    def check(self, checkpoint: Checkpoint, options: BuildOptions) -> None:
        """See ``EngineBuilder``."""
        status = self.available()
        if status.version is None:
            raise BackendError("backend onnxruntime", found=status.reason, action=f"Run `{status.install}`")
        options.check(checkpoint, known_extras=(native_kernels.EXTRA,))
        native_kernels.choose_compiler(options)

    def build(self, checkpoint: Checkpoint, options: BuildOptions, folder: Path, *, progress: Progress) -> BuiltEngine:
        """See ``EngineBuilder``."""
        self.check(checkpoint, options)
        started = time.monotonic()
        capacity = cache_capacity(options.max_length, options.max_query_len)
        compiler = native_kernels.choose_compiler(options)
        graph_options, int8_facts = _plan(checkpoint, options, capacity, progress, native=compiler is not None)
        try:
            files = write_target_graph(checkpoint, graph_options, folder, progress=progress)
        except OSError as error:
            raise BuildError("graph", found=str(error), where=str(folder)) from error
        check_graph(files.graph)
        names = [files.graph.name, files.weights.name]
        requires = {"onnxruntime": ">=" + ".".join(map(str, LEAST_VERSION))}
        if compiler is not None:
            names.append(native_kernels.write_library(folder, compiler, progress).name)
            requires.update(native_kernels.REQUIRES)
        draft = None
        if options.draft is not None:
            target = TargetFiles(
                folder=folder,
                graph_file=files.graph.name,
                storage=graph_options.storage,
                is_native=compiler is not None,
                max_length=options.max_length,
                max_query_len=options.max_query_len,
                calibration_text=options.calibration_text,
            )
            draft, draft_files = write_draft_engine(options.draft, checkpoint, target, progress=progress)
            names += draft_files
        return BuiltEngine(
            backend=self.name,
            backend_version=version(PACKAGE),
            precision=options.precision,
            graph_file=files.graph.name,
            files=tuple(names),
            kv_cache=make_cache_spec(checkpoint.spec, capacity),
            max_query_len=options.max_query_len,
            min_query_len=MIN_QUERY_LEN if compiler is None else native_kernels.MIN_QUERY_LEN,
            feature_layers=options.all_feature_layers,
            requires=requires,
            build={
                "dialect": graph_options.dialect,
                "storage": graph_options.storage,
                "kernels": "onnxruntime" if compiler is None else compiler.version,
                "num_bytes": files.num_bytes,
                "seconds": round(time.monotonic() - started, 1),
                "int8": int8_facts,
            },
            quality={},
            draft=draft,
        )


def _plan(
    checkpoint: Checkpoint, options: BuildOptions, capacity: int, progress: Progress, *, native: bool
) -> tuple[GraphOptions, dict[str, Any]]:
    """How the graph is written, and what the INT8 search found out."""
    plain = GraphOptions(
        dialect="onnxruntime",
        storage="fp32" if options.precision == "fp32" else "fp16",
        capacity=capacity,
        feature_layers=options.all_feature_layers,
    )
    if options.precision != "int8":
        return plain, {}
    if native:
        from ..quantize.native import plan_native  # noqa: PLC0415

        exact = plan_native(checkpoint, calibration_text=options.calibration_text, progress=progress)
        return replace(plain, dialect="native", linears=exact.linears, embedding=exact.embedding), {}
    from ..quantize import plan_int8  # noqa: PLC0415 (needs ONNX Runtime at work; float builds do not)

    plan = plan_int8(
        checkpoint,
        error_budget=options.error_budget,
        calibration_text=options.calibration_text,
        num_threads=options.num_threads,
        progress=progress,
    )
    return replace(plain, linears=plan.linears, embedding=plan.embedding, norm_factors=plan.norm_factors), plan.facts()
