"""The backend ``tensorrt-rtx``: engines for RTX GPUs, built ahead of time on a machine without one."""

import logging
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...checkpoint.source import Checkpoint
from ...errors import BuildError, UsageError
from ...graph.linear import LinearPlan
from ...graph.target_graph import GraphFiles, GraphOptions, cache_capacity, write_target_graph
from ...progress import Progress
from ...spec.cache import make_cache_spec
from ..base import BackendStatus, BuildOptions, BuiltEngine
from .compiler import CompiledEngine, DimRange, compile_engine
from .evaluation import measure_distance
from .gpus import capabilities_of, choose_gpus
from .library import CUDA_MAJOR, INSTALL_HINT, MIN_DRIVER, check_version, find_version, load_library
from .weight_only import WeightOnlyLinear

ENGINE_NAME = "target.engine"
MAX_LOGITS_LEN = 65
"""Most tokens of a row that get logits in one step: the longest draft (64) and the token before it."""
MIN_QUERY_LEN = 2
"""As in the other backends: whether one token takes other kernels than two is not known without the GPU."""
_logger = logging.getLogger(__name__)


class TensorRtRtxBuilder:
    """See ``EngineBuilder``. One engine serves all GPUs that are named; it is compiled further when it is loaded."""

    @property
    def name(self) -> str:
        """As in ``--backend``."""
        return "tensorrt-rtx"

    def available(self) -> BackendStatus:
        """See ``EngineBuilder``; looks at package metadata alone."""
        version = find_version()
        if version is None:
            reason = "its wheels are not installed"
            return BackendStatus(name=self.name, version=None, reason=reason, install=INSTALL_HINT)
        return BackendStatus(name=self.name, version=version)

    def check(self, checkpoint: Checkpoint, options: BuildOptions) -> None:
        """See ``EngineBuilder``."""
        choose_gpus(options.gpus, options.precision)
        if options.draft is not None:
            raise UsageError("draft", expected="none for the backend tensorrt-rtx", found=options.draft.name)
        options.check(checkpoint)
        check_version()

    def build(self, checkpoint: Checkpoint, options: BuildOptions, folder: Path, *, progress: Progress) -> BuiltEngine:
        """See ``EngineBuilder``."""
        self.check(checkpoint, options)
        gpus = choose_gpus(options.gpus, options.precision)
        load_library()
        distance = measure_distance(checkpoint, options.precision, progress)
        distance.check(options.max_kl, options.min_top1)
        capacity = cache_capacity(options.max_length, options.max_query_len)
        with tempfile.TemporaryDirectory(dir=folder, prefix="graph-") as scratch:
            graph = _write_graph(checkpoint, options, capacity, Path(scratch), progress)
            with progress.stage(f"compile for {', '.join(gpus)}") as stage:
                engine = compile_engine(
                    graph.graph,
                    folder / ENGINE_NAME,
                    gpus=gpus,
                    dims=step_dims(options.max_batch, options.max_query_len),
                )
                stage.note(f"{engine.num_bytes / 1e6:,.1f} MB engine in {engine.seconds:.1f} s")
        _logger.info("%s: %d layers, %.1f MB", ENGINE_NAME, engine.num_layers, engine.num_bytes / 1e6)
        return replace(self._describe(checkpoint, options, capacity, gpus, engine), quality=distance.to_dict())

    def _describe(
        self,
        checkpoint: Checkpoint,
        options: BuildOptions,
        capacity: int,
        gpus: tuple[str, ...],
        engine: CompiledEngine,
    ) -> BuiltEngine:
        return BuiltEngine(
            backend=self.name,
            backend_version=engine.library_version,
            precision=options.precision,
            graph_file=ENGINE_NAME,
            files=(ENGINE_NAME,),
            kv_cache=make_cache_spec(checkpoint.spec, capacity, "float16"),
            max_query_len=options.max_query_len,
            min_query_len=min(MIN_QUERY_LEN, options.max_query_len),
            feature_layers=options.feature_layers,
            requires=requirements(engine.library_version, gpus),
            build=_facts(options, gpus, engine),
            quality={},
        )


def step_dims(max_batch: int, max_query_len: int) -> dict[str, DimRange]:
    """Ranges of a step's dimensions: usual is one row that decodes a short block, most is a full batch of prefill."""
    num_logits = min(MAX_LOGITS_LEN, max_query_len)
    return {
        "B": DimRange(least=1, usual=1, most=max_batch),
        "T": DimRange(least=1, usual=min(8, max_query_len), most=max_query_len),
        "N": DimRange(least=1, usual=min(8, num_logits), most=num_logits),
    }


def requirements(version: str, gpus: tuple[str, ...]) -> dict[str, str]:
    """What a machine must have: engines of one release of TensorRT-RTX are refused by every other one."""
    release = ".".join(version.split(".")[:3])
    return {
        "tensorrt_rtx": f"=={release}",
        "compute_capability": ", ".join(capabilities_of(gpus)),
        "cuda": f">={CUDA_MAJOR}",
        "driver": f">={MIN_DRIVER}",
    }


def _write_graph(
    checkpoint: Checkpoint, options: BuildOptions, capacity: int, folder: Path, progress: Progress
) -> GraphFiles:
    spec = checkpoint.spec
    linears: dict[str, LinearPlan] = {}
    if options.precision == "int8":
        names = [f"layers.{i}.{part}" for i in range(spec.num_layers) for part in ("qkv", "o", "gate_up", "down")]
        linears = dict.fromkeys([*names, "head"], WeightOnlyLinear())
    graph_options = GraphOptions(
        dialect="standard",
        storage="fp16",
        compute="fp16",
        capacity=capacity,
        columns="capacity",
        feature_layers=options.feature_layers,
        linears=linears,
    )
    try:
        return write_target_graph(checkpoint, graph_options, folder, progress=progress)
    except OSError as error:
        raise BuildError("graph", expected="to be written", found=str(error), where=str(folder)) from error


def _facts(options: BuildOptions, gpus: tuple[str, ...], engine: CompiledEngine) -> dict[str, Any]:
    return {
        "gpus": list(gpus),
        "dialect": "standard",
        "compute": "fp16",
        "weights": "int8 per output channel" if options.precision == "int8" else "fp16",
        "num_layers": engine.num_layers,
        "num_bytes": engine.num_bytes,
        "compile_seconds": round(engine.seconds, 2),
    }
