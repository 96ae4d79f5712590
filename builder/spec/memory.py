"""Estimates of what building and serving a target, with a draft or without, take: bytes of files, weights and caches.

Estimates, not limits: they count weights, cache and logits, and leave out a runtime's own few hundred MB.
"""

from dataclasses import asdict, dataclass
from typing import Literal

from .cache import make_cache_spec
from .draft import DraftSpec
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
    """Bytes for one precision on a CPU. ``serve_bytes`` = weights + caches of all slots + logits.

    ``draft_...``: what a draft adds, 0 without one; ``file_bytes`` and ``serve_bytes`` have it in them. A fitted
    ranking is not counted.
    """

    precision: Precision
    file_bytes: int
    build_peak_bytes: int
    weight_bytes: int
    cache_bytes_per_token: int
    cache_bytes_per_slot: int
    logits_bytes: int
    draft_file_bytes: int
    draft_weight_bytes: int
    draft_cache_bytes_per_slot: int
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


def count_draft_parameters(spec: DraftSpec) -> ParameterCounts:
    """Counts of an EAGLE-3 draft's own tensors; they equal the sizes that its strict loading asks for."""
    hidden, middle = spec.hidden_size, spec.intermediate_size
    query, cache = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    linears = hidden * spec.feature_size + (query + 2 * cache) * 2 * hidden + query * hidden + 3 * hidden * middle
    small = (query + 2 * cache) * spec.qkv_bias + hidden * spec.o_bias + (2 * middle + hidden) * spec.mlp_bias
    small += hidden * spec.fc_bias + spec.feature_size * (spec.norm_before_fc + spec.fc_norm)
    head_rows = spec.head_vocab_size if spec.own_head else 0
    return ParameterCounts(
        embedding=spec.vocab_size * hidden if spec.own_embedding else 0,
        head=head_rows * hidden,
        linears=linears,
        linear_rows=hidden + query + 2 * cache + hidden + 2 * middle + hidden + head_rows,
        small=small + (3 + (spec.norms_head_input or spec.feeds_back_normed)) * hidden,
    )


def cache_bytes_per_token(spec: ModelSpec | DraftSpec) -> int:
    """Bytes of float32 keys and values."""
    return make_cache_spec(spec, capacity=1).slot_bytes


def estimate_memory(
    spec: ModelSpec,
    precision: Precision,
    *,
    max_batch: int,
    max_length: int,
    draft: ModelSpec | DraftSpec | None = None,
) -> MemoryEstimate:
    """What ``precision`` takes on a CPU, which computes fp16 storage in float32.

    ``max_batch`` slots of ``max_length`` tokens each; a cache is float32 [2, L, K, S, Dh] a slot, and ``draft`` has one
    of its own. Building holds one tensor in float32 twice (as read, as written) beside the written file's pages.
    """
    counts = count_parameters(spec)
    file_bytes, weight_bytes = _file_bytes(counts, precision), _weight_bytes(counts, precision)
    largest = max(counts.embedding, spec.hidden_size * 2 * spec.intermediate_size) * 4
    per_token, logits = cache_bytes_per_token(spec), max_batch * spec.vocab_size * 4
    draft_file = draft_weights = draft_slot = 0
    if draft is not None:
        own = count_parameters(draft) if isinstance(draft, ModelSpec) else count_draft_parameters(draft)
        draft_file, draft_weights = _file_bytes(own, precision), _weight_bytes(own, precision)
        draft_slot = cache_bytes_per_token(draft) * max_length
    caches = max_batch * (per_token * max_length + draft_slot)
    return MemoryEstimate(
        precision=precision,
        file_bytes=file_bytes + draft_file,
        build_peak_bytes=2 * largest + (file_bytes if precision == "int8" else 0),
        weight_bytes=weight_bytes,
        cache_bytes_per_token=per_token,
        cache_bytes_per_slot=per_token * max_length,
        logits_bytes=logits,
        draft_file_bytes=draft_file,
        draft_weight_bytes=draft_weights,
        draft_cache_bytes_per_slot=draft_slot,
        serve_bytes=weight_bytes + draft_weights + caches + logits,
    )


def _weight_bytes(counts: ParameterCounts, precision: Precision) -> int:
    """In memory: FP16 is computed in float32."""
    return counts.total * 4 if precision == "fp16" else _file_bytes(counts, precision)


def _file_bytes(counts: ParameterCounts, precision: Precision) -> int:
    if precision == "fp32":
        return counts.total * 4
    if precision == "fp16":
        return (counts.total - counts.small) * 2 + counts.small * 4
    # embedding and head are one INT8 matrix where they are tied, else the embedding is looked up as INT8 as well
    return counts.embedding + counts.head + counts.linears + counts.small * 4 + counts.linear_rows * BYTES_PER_SCALE
