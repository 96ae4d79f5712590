"""Estimates of what building and serving a target take: bytes of files, of weights in memory, of the cache.

Estimates, not limits: they count weights, cache and logits, and leave out a runtime's own few hundred MB.
"""

from dataclasses import asdict, dataclass
from typing import Literal

from .target import ModelSpec

Precision = Literal["fp32", "fp16", "int8"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "int8")
BYTES_PER_SCALE = 8  # one float32 scale and one int32 sum an output row of an INT8 linear


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCounts:
    """Parameters by where they go: ``embedding`` rows x hidden, ``head`` the same (0 when tied), ``linears`` the
    matrices of all layers, ``linear_rows`` their output rows together (head included), ``small`` norms and biases."""

    embedding: int
    head: int
    linears: int
    linear_rows: int
    small: int

    @property
    def total(self) -> int:
        """All parameters, a tied head counted once."""
        return self.embedding + self.head + self.linears + self.small


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Bytes for one precision on a CPU. ``serve_bytes`` = weights + cache of all slots + logits."""

    precision: Precision
    file_bytes: int
    build_peak_bytes: int
    weight_bytes: int
    cache_bytes_per_token: int
    cache_bytes_per_slot: int
    logits_bytes: int
    serve_bytes: int

    def to_dict(self) -> dict[str, int | str]:
        """Plain JSON values."""
        return asdict(self)


def count_parameters(spec: ModelSpec) -> ParameterCounts:
    """Counts from the spec alone; they equal the sizes of ``expected_tensors``."""
    hidden, middle = spec.hidden_size, spec.intermediate_size
    query, cache = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    rows = query + 2 * cache + hidden + 2 * middle + hidden
    linears = hidden * (query + 2 * cache) + query * hidden + 3 * hidden * middle
    small = (4 if spec.post_norms else 2) * hidden + (2 * spec.head_dim if spec.qk_norm else 0)
    small += (query + 2 * cache) * spec.qkv_bias + hidden * spec.o_bias + (2 * middle + hidden) * spec.mlp_bias
    return ParameterCounts(
        embedding=spec.vocab_size * hidden,
        head=0 if spec.tied_head else spec.vocab_size * hidden,
        linears=linears * spec.num_layers,
        linear_rows=rows * spec.num_layers + spec.vocab_size,
        small=small * spec.num_layers + hidden,
    )


def estimate_memory(spec: ModelSpec, precision: Precision, *, max_batch: int, max_length: int) -> MemoryEstimate:
    """What ``precision`` takes on a CPU, which computes fp16 storage in float32.

    ``max_batch`` slots of ``max_length`` tokens each; the cache is float32 [2, L, K, S, Dh] a slot. Building holds one
    tensor in float32 twice (as read, as written) beside the written file's pages.
    """
    counts = count_parameters(spec)
    file_bytes = _file_bytes(counts, precision)
    weight_bytes = counts.total * 4 if precision == "fp16" else file_bytes
    largest = max(counts.embedding, spec.hidden_size * 2 * spec.intermediate_size) * 4
    per_token = 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim * 4
    logits = max_batch * spec.vocab_size * 4
    return MemoryEstimate(
        precision=precision,
        file_bytes=file_bytes,
        build_peak_bytes=2 * largest + (file_bytes if precision == "int8" else 0),
        weight_bytes=weight_bytes,
        cache_bytes_per_token=per_token,
        cache_bytes_per_slot=per_token * max_length,
        logits_bytes=logits,
        serve_bytes=weight_bytes + max_batch * per_token * max_length + logits,
    )


def _file_bytes(counts: ParameterCounts, precision: Precision) -> int:
    if precision == "fp32":
        return counts.total * 4
    if precision == "fp16":
        return (counts.total - counts.small) * 2 + counts.small * 4
    # embedding and head are one INT8 matrix where they are tied, else the embedding is looked up as INT8 as well
    return counts.embedding + counts.head + counts.linears + counts.small * 4 + counts.linear_rows * BYTES_PER_SCALE
