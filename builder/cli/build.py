"""``build-engine build`` and ``compile``: a checkpoint becomes packages in a model repository, or bare engines."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ..draft_options import AUTO, DraftChoice
from ..errors import UsageError
from ..plan import DEFAULT_MAX_BATCH, DEFAULT_MAX_QUERY_LEN, BuildPlan, default_name
from . import build_options as options
from .output import JsonOption, QuietOption, megabytes, open_progress, print_json, print_table
from .paths import check_output, check_text_file

if TYPE_CHECKING:
    from ..pipeline import BuiltPackage

_Work = Literal["build", "compile_only"]

_BUILD = """Build engines from a checkpoint and package them as a Triton model repository.

What is already built from the same checkpoint with the same options is skipped.

Example: [cyan]build-engine build SmolLM2-135M-Instruct.gguf --output repository[/cyan]

Example: [cyan]build-engine build ./Qwen3-0.6B -o repository -p int8 --max-batch 4 --max-length 2048[/cyan]

Example: [cyan]build-engine build ./Qwen3-8B -o repository --draft ./qwen3-8b-eagle3[/cyan]
"""
_COMPILE = """Build engines alone (engine.json and the files it names), for [cyan]package[/cyan] or for another machine.

Example: [cyan]build-engine compile model.gguf -o engines --backend tensorrt-rtx --gpu sm86,sm120[/cyan]
"""


def _make_command(work: _Work, description: str) -> Callable[..., None]:
    """A command for a function of ``pipeline``; typer reads its options from the signature."""

    def command(
        checkpoint: options.Checkpoint,
        output: options.Output,
        name: options.Name = None,
        precision: options.Precisions = None,
        backend: options.Backend = "onnxruntime",
        gpu: options.Gpu = None,
        max_batch: options.MaxBatch = DEFAULT_MAX_BATCH,
        max_length: options.MaxLength = None,
        max_query_len: options.MaxQueryLen = DEFAULT_MAX_QUERY_LEN,
        threads: options.Threads = None,
        kernels: options.Kernels = "auto",
        draft: options.Draft = AUTO,
        draft_head: options.DraftHead = None,
        draft_candidates: options.DraftCandidates = None,
        draft_rank: options.DraftRank = None,
        draft_vocabulary: options.DraftVocabulary = None,
        draft_window: options.DraftWindow = None,
        calibration_text: options.CalibrationText = None,
        error_budget: options.ErrorBudget = None,
        max_kl: options.MaxKl = None,
        min_top1: options.MinTop1 = None,
        force: options.Force = False,
        json: JsonOption = False,
        quiet: QuietOption = False,
    ) -> None:
        _run(work, dict(locals()))

    command.__doc__ = description
    return command


build_packages = _make_command("build", _BUILD)
compile_engines = _make_command("compile_only", _COMPILE)


def _run(work: _Work, given: dict[str, Any]) -> None:
    """``work``: a function of ``pipeline``; ``given``: the options by parameter name."""
    check_output(given["output"])
    if given["calibration_text"] is not None:
        check_text_file("--calibration-text", given["calibration_text"])
    plan = BuildPlan(
        checkpoint=given["checkpoint"],
        output=given["output"],
        name=given["name"] if given["name"] is not None else default_name(given["checkpoint"]),
        precisions=_precisions(given["precision"]),
        backend=given["backend"],
        gpus=_gpus(given["gpu"]),
        max_batch=given["max_batch"],
        max_length=given["max_length"],
        max_query_len=given["max_query_len"],
        num_threads=given["threads"],
        kernels=given["kernels"],
        draft=DraftChoice(
            source=given["draft"],
            head=given["draft_head"],
            num_candidates=given["draft_candidates"],
            rank=given["draft_rank"],
            vocabulary=given["draft_vocabulary"],
            window=given["draft_window"],
        ),
        calibration_text=given["calibration_text"],
        error_budget=given["error_budget"],
        max_kl=given["max_kl"],
        min_top1=given["min_top1"],
        force=given["force"],
    )
    from .. import pipeline

    built = getattr(pipeline, work)(plan, open_progress(given["quiet"]))
    _show(built, json=given["json"])


def _precisions(given: Sequence[str] | None) -> Any:
    """Repeated or comma-separated, without doubles; ``BuildPlan`` checks the names."""
    names = [name for value in given or ("fp16", "int8") for name in value.split(",")]
    return tuple(dict.fromkeys(names))


def _gpus(given: str | None) -> tuple[str, ...]:
    if given is None:
        return ()
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    if not names:
        raise UsageError("--gpu", expected="GPU generations such as sm86,sm120", found=repr(given))
    return names


def _show(packages: Sequence["BuiltPackage"], *, json: bool) -> None:
    if json:
        print_json({"packages": [p.to_dict() for p in packages]})
        return
    rows = []
    for p in packages:
        kl, top1 = p.quality.get("kl_per_token"), p.quality.get("top1_agreement")
        quality = f"KL {kl:.4f}, top-1 {top1:.1%}" if kl is not None and top1 is not None else ""
        rows.append([p.folder, "up to date" if p.skipped else f"{p.seconds:.1f} s", megabytes(p.num_bytes), quality])
    print_table(["built", "time", "size", "quality against FP16"], rows)
