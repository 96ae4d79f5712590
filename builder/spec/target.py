"""Everything that the graph of a target model depends on, as frozen facts. Opens no files."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

Architecture = Literal["llama", "qwen2", "qwen3", "gemma3"]
RopeKind = Literal["default", "linear", "dynamic", "llama3", "yarn"]
LayerKind = Literal["full", "sliding"]
Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """Rotary position embedding. Fields that a kind does not use are None.

    The meaning of each is transformers' (``modeling_rope_utils``). ``dynamic`` depends on the position alone: the row
    of the table at position p is what transformers computes while decoding token p, so cached keys never go stale.
    """

    kind: RopeKind
    theta: float
    factor: float | None = None
    original_max_positions: int | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A decoder-only target.

    Per layer: norm -> q, k, v (``qkv_bias``), per-head RMS norms of q and k (``qk_norm``) -> rope -> attention scaled
    by ``attention_scale`` -> o (``o_bias``) -> [``post_norms``: norm] -> residual -> norm -> gate, up, ``activation``,
    down (``mlp_bias``) -> [norm] -> residual. RMS norms multiply by (``norm_offset`` + weight): 0 or, for Gemma, 1.
    ``embed_scale`` multiplies embeddings. A ``sliding`` layer sees keys at distance < ``sliding_window`` and rotates
    with ``local_rope`` where that is given. ``vocab_size`` counts embedding rows.
    """

    architecture: Architecture
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    norm_eps: float
    norm_offset: float
    activation: Activation
    attention_scale: float
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    post_norms: bool
    embed_scale: float
    tied_head: bool
    rope: RopeSpec
    local_rope: RopeSpec | None
    sliding_window: int | None
    layer_kinds: tuple[LayerKind, ...]

    @property
    def default_feature_layers(self) -> tuple[int, int, int]:
        """The three layer *inputs* that EAGLE-3 drafts read: 2, L//2, L-3 (clamped for tiny models)."""
        last = self.num_layers - 1
        return (min(2, last), self.num_layers // 2, max(0, self.num_layers - 3))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        values = asdict(self)
        values["layer_kinds"] = list(self.layer_kinds)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of ``to_dict``; unknown or missing keys raise ``ValueError``."""
        plain = dict(values)
        for name in ("rope", "local_rope"):
            if plain.get(name) is not None:
                plain[name] = RopeSpec(**plain[name])
        plain["layer_kinds"] = tuple(plain.get("layer_kinds", ()))
        wrong = set(plain) ^ {f.name for f in fields(cls)}
        if wrong:
            raise ValueError(f"model spec: unknown or missing keys {sorted(wrong)}")
        return cls(**plain)
