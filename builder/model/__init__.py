"""Model families: a checkpoint's config -> ``ModelSpec``, and the tensors that a spec needs."""

from .registry import read_model_spec
from .tensors import EMBEDDING, FINAL_NORM, HEAD, expected_tensors, layer_tensors

__all__ = ["EMBEDDING", "FINAL_NORM", "HEAD", "expected_tensors", "layer_tensors", "read_model_spec"]
