"""The options of ``build-engine build`` and ``compile``, as typer takes them."""

from pathlib import Path
from typing import Annotated

import typer

from .paths import to_path

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
