"""The operator sets that a target graph can be written in, by name."""

from typing import Literal

from .base import Dialect, DialectFactory, LayerAttention
from .onnxruntime import OnnxRuntimeDialect

DialectName = Literal["onnxruntime", "standard", "primitive"]

DIALECTS: dict[DialectName, DialectFactory] = {
    "onnxruntime": OnnxRuntimeDialect,
}

__all__ = ["DIALECTS", "Dialect", "DialectFactory", "DialectName", "LayerAttention"]
