"""Everything that the graph of an EAGLE-3 draft depends on, as frozen facts. Opens no files."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

from .target import Activation, RopeSpec

HeadKind = Literal["full", "subset", "speculative", "grouped"]
HEAD_KINDS: tuple[HeadKind, ...] = ("full", "subset", "speculative", "grouped")


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSpec:
    """One decoder layer over the token embedding and the fused features of a target (EAGLE-3).

    First step of a block: ``features`` [3 d_target] of position t -> [``norm_before_fc``: one RMS norm over all 3
    d_target | ``fc_norm``: one norm a feature] -> fc (``fc_bias``) -> hidden [d]. Later steps take the hidden state
    that the step before gave. The token beside it is the one at position t + 1.

    Layer: x = concat(norm(embedding), norm(hidden)) [2d]; the residual is hidden, or its norm where
    ``norm_before_residual``; attention with q, k, v of width 2d; MLP with its norm. The layer's result h is fed back as
    it is, or after the final norm where ``feeds_back_normed``. The head reads the final norm of h, or h itself where
    ``norms_head_input`` is false.

    ``feature_layers``: target layers whose *inputs* are read (EAGLE's convention, whatever the file said).
    ``embed_scale`` multiplies embeddings, as the target's does. ``own_embedding``, ``own_head``: False borrows the
    target's. ``head_vocab_size``: rows of the head, fewer than ``vocab_size`` (the target's) for a subset. ``window``:
    draft keys at distance < window, None for all.
    """

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    activation: Activation
    attention_scale: float
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    rope: RopeSpec
    max_positions: int
    target_hidden_size: int
    vocab_size: int
    head_vocab_size: int
    feature_layers: tuple[int, ...]
    fc_bias: bool
    norm_before_fc: bool
    fc_norm: bool
    norm_before_residual: bool
    feeds_back_normed: bool
    norms_head_input: bool
    embed_scale: float
    own_embedding: bool
    own_head: bool
    window: int | None

    @property
    def feature_size(self) -> int:
        """Width of ``features``: 3 d_target."""
        return len(self.feature_layers) * self.target_hidden_size

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        values = asdict(self)
        values["feature_layers"] = list(self.feature_layers)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of ``to_dict``; unknown or missing keys raise ``ValueError``."""
        wrong = set(values) ^ {f.name for f in fields(cls)}
        if wrong:
            raise ValueError(f"draft spec: unknown or missing keys {sorted(wrong)}")
        plain = dict(values)
        plain["rope"] = RopeSpec(**plain["rope"])
        plain["feature_layers"] = tuple(plain["feature_layers"])
        return cls(**plain)
