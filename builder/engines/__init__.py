"""Engine backends by name. A backend's own libraries are imported when it is asked for, never before."""

from importlib import import_module

from ..errors import UsageError
from .base import BackendStatus, BuildOptions, BuiltEngine, EngineBuilder

_BUILDERS: dict[str, tuple[str, str]] = {
    "onnxruntime": (".onnxruntime", "OnnxRuntimeBuilder"),
    "tensorrt-rtx": (".tensorrt_rtx", "TensorRtRtxBuilder"),
}
"""Name -> module and class."""

BACKEND_NAMES: tuple[str, ...] = tuple(_BUILDERS)


def get_builder(name: str) -> EngineBuilder:
    """The builder of a backend; raises ``UsageError`` for an unknown name."""
    if name not in _BUILDERS:
        raise UsageError("backend", expected=" or ".join(BACKEND_NAMES), found=repr(name))
    module, kind = _BUILDERS[name]
    builder: EngineBuilder = getattr(import_module(module, __name__), kind)()
    return builder


__all__ = ["BACKEND_NAMES", "BackendStatus", "BuildOptions", "BuiltEngine", "EngineBuilder", "get_builder"]
