"""``build-engine build`` and ``compile``: a checkpoint becomes packages in a model repository, or bare engines."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..draft_options import AUTO, DraftChoice
from ..errors import UsageError
from ..plan import DEFAULT_MAX_BATCH, DEFAULT_MAX_QUERY_LEN, BuildPlan, default_name
from ..progress import Progress
from .output import JsonOption, QuietOption, megabytes, open_progress, print_json, print_table
from .paths import check_output, check_text_file, to_path

if TYPE_CHECKING:
    from ..pipeline import BuiltPackage

_LIMITS = "Limits"
_QUALITY = "INT8 quality"
_DRAFT = "Draft"

Checkpoint = Annotated[
    Path, typer.Argument(parser=to_path, metavar="CHECKPOINT", help="Hugging Face folder or GGUF file.")
]
Output = Annotated[
    Path,
    typer.Option(
        "--output", "-o", parser=to_path, metavar="FOLDER", help="Folder that gets <name>_<precision> folders."
    ),
]
Name = Annotated[str | None, typer.Option(help="Model name; default: from the path.")]
Precisions = Annotated[
    list[str] | None, typer.Option("--precision", "-p", help="fp32, fp16 or int8 (repeatable); default fp16 and int8.")
]
Backend = Annotated[str, typer.Option(help="onnxruntime, or tensorrt-rtx.")]
Gpu = Annotated[str | None, typer.Option(help="GPUs for tensorrt-rtx, such as sm86,sm120.")]
MaxBatch = Annotated[int, typer.Option(help="Requests decoded together (cache slots).", rich_help_panel=_LIMITS)]
MaxLength = Annotated[
    int | None,
    typer.Option(help="Prompt + output tokens; default: the model's, at most 4096.", rich_help_panel=_LIMITS),
]
MaxQueryLen = Annotated[int, typer.Option(help="Most tokens of a request in one step.", rich_help_panel=_LIMITS)]
Threads = Annotated[int | None, typer.Option(help="Threads the served model computes with; default: all cores.")]
Kernels = Annotated[
    str,
    typer.Option(help="Who computes INT8 on a CPU: native (compiled by the build), onnxruntime, or auto."),
]
Draft = Annotated[
    str,
    typer.Option(
        metavar="FOLDER|FILE",
        help="Draft model: an EAGLE-3 folder or a small model; auto takes one that ships for this model, none only"
        " looks up.",
        rich_help_panel=_DRAFT,
    ),
]
DraftHead = Annotated[
    str | None, typer.Option(help="full, subset, speculative or grouped; default: what suits.", rich_help_panel=_DRAFT)
]
DraftCandidates = Annotated[
    int | None, typer.Option(help="Tokens with exact logits a guess; default 2048.", rich_help_panel=_DRAFT)
]
DraftRank = Annotated[int | None, typer.Option(help="Rank of a fitted vocabulary ranking.", rich_help_panel=_DRAFT)]
DraftVocabulary = Annotated[
    Path | None,
    typer.Option(
        parser=to_path,
        metavar="FILE",
        help="File of fit-vocabulary or choose-vocabulary.",
        rich_help_panel=_DRAFT,
    ),
]
DraftWindow = Annotated[
    int | None, typer.Option(help="Tokens that the draft looks back; 0: all.", rich_help_panel=_DRAFT)
]
CalibrationText = Annotated[
    Path | None,
    typer.Option(
        parser=to_path,
        metavar="FILE",
        help="UTF-8 text to calibrate on; default: a shipped one.",
        rich_help_panel=_QUALITY,
    ),
]
ErrorBudget = Annotated[
    float | None,
    typer.Option(help="KL per token that 8-bit activations may cost (kernels onnxruntime).", rich_help_panel=_QUALITY),
]
MaxKl = Annotated[float | None, typer.Option(help="Most KL to FP16, nats per token.", rich_help_panel=_QUALITY)]
MinTop1 = Annotated[
    float | None, typer.Option(help="Least top-1 agreement with FP16, 0 to 1.", rich_help_panel=_QUALITY)
]
Force = Annotated[bool, typer.Option("--force", help="Build again; replace packages of another model.")]


def build_packages(
    checkpoint: Checkpoint,
    output: Output,
    name: Name = None,
    precision: Precisions = None,
    backend: Backend = "onnxruntime",
    gpu: Gpu = None,
    max_batch: MaxBatch = DEFAULT_MAX_BATCH,
    max_length: MaxLength = None,
    max_query_len: MaxQueryLen = DEFAULT_MAX_QUERY_LEN,
    threads: Threads = None,
    kernels: Kernels = "auto",
    draft: Draft = AUTO,
    draft_head: DraftHead = None,
    draft_candidates: DraftCandidates = None,
    draft_rank: DraftRank = None,
    draft_vocabulary: DraftVocabulary = None,
    draft_window: DraftWindow = None,
    calibration_text: CalibrationText = None,
    error_budget: ErrorBudget = None,
    max_kl: MaxKl = None,
    min_top1: MinTop1 = None,
    force: Force = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Build engines from a checkpoint and package them as a Triton model repository.

    What is already built from the same checkpoint with the same options is skipped.

    Example: [cyan]build-engine build SmolLM2-135M-Instruct.gguf --output repository[/cyan]

    Example: [cyan]build-engine build ./Qwen3-0.6B -o repository -p int8 --max-batch 4 --max-length 2048[/cyan]

    Example: [cyan]build-engine build ./Qwen3-8B -o repository --draft ./qwen3-8b-eagle3[/cyan]
    """
    given = dict(locals())
    from ..pipeline import build

    _run(build, given)


def compile_engines(
    checkpoint: Checkpoint,
    output: Output,
    name: Name = None,
    precision: Precisions = None,
    backend: Backend = "onnxruntime",
    gpu: Gpu = None,
    max_batch: MaxBatch = DEFAULT_MAX_BATCH,
    max_length: MaxLength = None,
    max_query_len: MaxQueryLen = DEFAULT_MAX_QUERY_LEN,
    threads: Threads = None,
    kernels: Kernels = "auto",
    draft: Draft = AUTO,
    draft_head: DraftHead = None,
    draft_candidates: DraftCandidates = None,
    draft_rank: DraftRank = None,
    draft_vocabulary: DraftVocabulary = None,
    draft_window: DraftWindow = None,
    calibration_text: CalibrationText = None,
    error_budget: ErrorBudget = None,
    max_kl: MaxKl = None,
    min_top1: MinTop1 = None,
    force: Force = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Build engines alone (engine.json and the files it names), for [cyan]package[/cyan] or for another machine.

    Example: [cyan]build-engine compile model.gguf -o engines --backend tensorrt-rtx --gpu sm86,sm120[/cyan]
    """
    given = dict(locals())
    from ..pipeline import compile_only

    _run(compile_only, given)


def _run(work: Callable[[BuildPlan, Progress], Sequence["BuiltPackage"]], given: dict[str, Any]) -> None:
    """Both commands take the same options; ``given`` are theirs by parameter name."""
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
    _show(work(plan, open_progress(given["quiet"])), json=given["json"])


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
