"""Engines for RTX GPUs through TensorRT-RTX; importing this needs none of its wheels."""

from .backend import TensorRtRtxBuilder

__all__ = ["TensorRtRtxBuilder"]
