"""The cache that a model of some sizes needs, as the manifest describes it."""

from typing import Literal

from draftsmith.model_repo.contract.manifest import KvCacheSpec

from .draft import DraftSpec
from .target import ModelSpec


def make_cache_spec(
    spec: ModelSpec | DraftSpec, capacity: int, dtype: Literal["float32", "float16"] = "float32"
) -> KvCacheSpec:
    """``capacity`` tokens a slot; an EAGLE-3 draft has one layer."""
    return KvCacheSpec(
        num_layers=spec.num_layers if isinstance(spec, ModelSpec) else 1,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        capacity=capacity,
        dtype=dtype,
    )
