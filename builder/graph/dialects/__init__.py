"""The operator sets that a target graph can be written in, by name."""

from typing import Literal

from .base import Dialect, DialectFactory, LayerAttention
from .native import NativeDialect
from .onnxruntime import OnnxRuntimeDialect
from .primitive import PrimitiveDialect
from .standard import StandardDialect

DialectName = Literal["onnxruntime", "native", "standard", "primitive"]

DIALECTS: dict[DialectName, DialectFactory] = {
    "onnxruntime": OnnxRuntimeDialect,
    "native": NativeDialect,
    "standard": StandardDialect,
    "primitive": PrimitiveDialect,
}

__all__ = ["DIALECTS", "Dialect", "DialectFactory", "DialectName", "LayerAttention"]
