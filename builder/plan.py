"""What a build was asked for: options only, checked where no checkpoint is needed. Opens no files."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftsmith.model_repo.contract.manifest import PRECISIONS, Precision

from .draft_options import AUTO, NONE, DraftChoice
from .errors import UsageError
from .ranges import check_range

DEFAULT_MAX_BATCH = 16
DEFAULT_MAX_LENGTH = 4096
DEFAULT_MAX_QUERY_LEN = 256
MAX_BATCH_LIMIT = 1024
MAX_LENGTH_LIMIT = 1 << 24
KERNELS = ("auto", "native", "onnxruntime")
BACKENDS = ("onnxruntime", "tensorrt-rtx")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_QUANTISATION = re.compile(r"[-._](?:Q\d(?:_[0-9KSML]+)*|F16|BF16|F32|IQ\d\w*)$", re.IGNORECASE)
_GPU = re.compile(r"sm\d{2,3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """Options of ``build-engine build``.

    ``max_length``: prompt + output tokens of a request, None for the model's own limit (at most 4,096).
    ``max_query_len``: most tokens a row takes in one step. ``max_kl`` (nats per token) and ``min_top1`` (0 to 1) are
    the quality gate's limits, None for its defaults. ``calibration_text`` None means the text that is shipped.
    ``draft``: the draft model that goes with it. ``kernels``: who computes INT8 on a CPU, our own operators (compiled
    by the build) or ONNX Runtime's; ``auto`` takes ours where there is a C compiler.
    """

    checkpoint: Path
    output: Path
    name: str
    precisions: tuple[Precision, ...] = ("fp16", "int8")
    backend: str = "onnxruntime"
    gpus: tuple[str, ...] = ()
    max_batch: int = DEFAULT_MAX_BATCH
    max_length: int | None = None
    max_query_len: int = DEFAULT_MAX_QUERY_LEN
    num_threads: int | None = None
    calibration_text: Path | None = None
    kernels: str = "auto"
    draft: DraftChoice = field(default_factory=DraftChoice)
    error_budget: float | None = None
    max_kl: float | None = None
    min_top1: float | None = None
    force: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError("--name", expected="letters, digits, dot, dash or underscore", found=repr(self.name))
        for precision in self.precisions:
            if precision not in PRECISIONS:
                raise UsageError("--precision", expected=" or ".join(PRECISIONS), found=repr(precision))
        if self.backend not in BACKENDS:
            raise UsageError("--backend", expected=" or ".join(BACKENDS), found=repr(self.backend))
        if self.kernels not in KERNELS:
            raise UsageError("--kernels", expected=" or ".join(KERNELS), found=repr(self.kernels))
        for gpu in self.gpus:
            if not _GPU.fullmatch(gpu):
                raise UsageError("--gpu", expected="GPU generations such as sm86,sm120", found=repr(gpu))
        if self.gpus and self.backend == "onnxruntime":
            raise UsageError("--gpu", expected="--backend tensorrt-rtx beside it", found=f"--backend {self.backend}")
        if self.backend != "onnxruntime" and self.draft.source not in (AUTO, NONE):
            raise UsageError("--draft", expected="--backend onnxruntime beside it", found=f"--backend {self.backend}")
        self._check_numbers()

    def _check_numbers(self) -> None:
        check_range("--max-batch", self.max_batch, 1, MAX_BATCH_LIMIT)
        check_range("--max-query-len", self.max_query_len, 2, 8192)
        check_range("--max-length", self.max_length, 2, MAX_LENGTH_LIMIT)
        check_range("--threads", self.num_threads, 1, 1024)
        if self.error_budget is not None and not 0 <= self.error_budget < float("inf"):
            raise UsageError("--error-budget", expected="nats per token, 0 or more", found=str(self.error_budget))
        if self.max_kl is not None and not 0 < self.max_kl < float("inf"):
            raise UsageError("--max-kl", expected="nats per token above 0", found=str(self.max_kl))
        if self.min_top1 is not None and not 0 <= self.min_top1 <= 1:
            raise UsageError("--min-top1", expected="a share from 0 to 1", found=str(self.min_top1))

    @property
    def source_name(self) -> str:
        """The checkpoint's file or folder name, without its place."""
        return self.checkpoint.absolute().name

    def folder_of(self, precision: Precision) -> Path:
        """Where the package of one precision goes."""
        return self.output / f"{self.name}_{precision}"

    def numbers(self, precision: Precision) -> dict[str, Any]:
        """The options that change a package's content, for its fingerprint and its manifest (no paths)."""
        return {
            "precision": precision,
            "backend": self.backend,
            "gpus": list(self.gpus),
            "max_batch": self.max_batch,
            "max_length": self.max_length,
            "max_query_len": self.max_query_len,
            "num_threads": self.num_threads,
            "kernels": self.kernels,
            "draft": self.draft.numbers(),
            "error_budget": self.error_budget,
            "max_kl": self.max_kl,
            "min_top1": self.min_top1,
        }


def default_name(checkpoint: Path) -> str:
    """A model name from a path: ``SmolLM2-135M-Instruct.Q4_1.gguf`` gives ``smollm2-135m-instruct``."""
    path = checkpoint.absolute()
    stem = path.stem if path.suffix == ".gguf" else path.name
    stem = _QUANTISATION.sub("", stem)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._").lower()
    return name or "model"
