"""Whether torch is there to train with, on which devices, and in which number formats. Importable without torch."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..errors import BackendError, UsageError

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Formats:
    """``linears`` of target and draft, ``head`` products."""

    linears: torch.dtype
    head: torch.dtype


def require_torch() -> None:
    """``BackendError`` with the command that installs what is missing."""
    for name in ("torch", "accelerate"):
        if find_spec(name) is None:
            raise BackendError(
                f"package `{name}`", expected="it installed", action="Run `pip install 'draftsmith[builder,train]'`."
            )


def choose_device(asked: str | None) -> str:
    """``cpu`` or ``cuda``; by default cuda where there is one."""
    import torch  # noqa: PLC0415 (optional extra)

    has_cuda = torch.cuda.is_available()
    if asked is None:
        return "cuda" if has_cuda else "cpu"
    if asked not in ("cpu", "cuda"):
        raise UsageError("--device", expected="cpu or cuda", found=asked)
    if asked == "cuda" and not has_cuda:
        raise BackendError("CUDA device", expected="one that torch can use", found="none", action="Use --device cpu.")
    return asked


def check_devices(count: int, device: str) -> None:
    """Raises ``UsageError`` unless so many of the device are there; of a CPU one is."""
    import torch  # noqa: PLC0415 (optional extra)

    found = torch.cuda.device_count() if device == "cuda" else 1
    if not 1 <= count <= found:
        raise UsageError("--devices", expected=f"from 1 to {found} ({device})", found=str(count))


def choose_formats(device: str) -> Formats:
    """Float32 on a CPU; bfloat16 linears and a float16 head (three more bits of a logit) on a GPU."""
    import torch  # noqa: PLC0415 (optional extra)

    return Formats(torch.float32, torch.float32) if device == "cpu" else Formats(torch.bfloat16, torch.float16)


def compile_core(device: str, core: Any) -> Any:
    """``core`` compiled into few passes over the logits on a GPU, as it is on a CPU or where compiling fails."""
    import torch  # noqa: PLC0415 (optional extra)

    if device == "cpu":
        return core
    compiled = torch.compile(core, dynamic=False)
    chosen = [compiled]

    def run(*values: Any) -> Any:
        try:
            return chosen[0](*values)
        except Exception:  # whatever the compiler raises, the plain form gives the same
            if chosen[0] is core:
                raise
            log.warning("torch.compile failed; the loss runs uncompiled", exc_info=True)
            chosen[0] = core
            return core(*values)

    return run
