"""The GPU generations that TensorRT-RTX builds for, by name, and which precisions each has.

Source: NVIDIA's support matrix of TensorRT-RTX 1.5 and the ``ComputeCapability`` values of the 1.7 wheels.
"""

from collections.abc import Sequence

from draftsmith.model_repo.contract.manifest import Precision

from ...errors import UsageError

COMPUTE_CAPABILITIES = {"sm75": "7.5", "sm86": "8.6", "sm89": "8.9", "sm120": "12.0", "sm121": "12.1"}
"""Name on the command line -> compute capability, in rising order."""
DEFAULT_GPUS = ("sm86", "sm89", "sm120")
"""What an engine is built for where no GPU is named: the RTX 30, 40 and 50 series."""
_EXAMPLES = {"sm75": "RTX 20", "sm86": "RTX 30", "sm89": "RTX 40", "sm120": "RTX 50", "sm121": "GB10"}
_NO_INT8_WEIGHTS = frozenset({"sm75"})


def choose_gpus(names: Sequence[str], precision: Precision) -> tuple[str, ...]:
    """The GPUs of one engine, in rising order and once each; ``DEFAULT_GPUS`` where ``names`` is empty.

    Raises ``UsageError`` for a name that TensorRT-RTX has no kernels for, and for a precision that a GPU lacks.
    """
    for name in names:
        if name not in COMPUTE_CAPABILITIES:
            known = ", ".join(f"{gpu} ({_EXAMPLES[gpu]})" for gpu in COMPUTE_CAPABILITIES)
            raise UsageError("--gpu", expected=known, found=name, where="backend tensorrt-rtx")
        if precision == "int8" and name in _NO_INT8_WEIGHTS:
            raise UsageError(
                f"--gpu {name}",
                expected="fp16",
                found=precision,
                where="backend tensorrt-rtx has no INT8 weights on compute capability 7.5",
                action=f"Build fp16 for {name}, or leave {name} out of the INT8 build",
            )
    if precision == "fp32":
        raise UsageError("--precision", expected="fp16 or int8", found=precision, where="backend tensorrt-rtx")
    return tuple(gpu for gpu in COMPUTE_CAPABILITIES if gpu in (names or DEFAULT_GPUS))


def capabilities_of(gpus: Sequence[str]) -> tuple[str, ...]:
    """Compute capabilities ("8.6", "12.0") of GPU names."""
    return tuple(COMPUTE_CAPABILITIES[gpu] for gpu in gpus)
