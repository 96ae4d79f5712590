"""The EAGLE-3 draft as a torch module: one decoder layer over token embedding and hidden state, and its ranking.

Entry e of a sequence holds the target's features of position e and the token of position e + 1; what comes out predicts
the token of position e + 2 (``builder/draft/reference.py`` has the same in NumPy). Embedding and head are the target's.
"""

import torch
from torch import nn
from torch.nn import functional

from ..graph.rope import rope_tables
from ..spec.draft import DraftSpec
from ..spec.target import ModelSpec
from .chain_attention import attend_chain
from .target_model import activate, rotate


def draft_spec(target: ModelSpec, *, intermediate_size: int) -> DraftSpec:
    """The shape of the drafts that are trained here: the original EAGLE-3's, with the target's width and heads."""
    return DraftSpec(
        hidden_size=target.hidden_size,
        intermediate_size=intermediate_size,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        norm_eps=target.norm_eps,
        activation="silu",
        attention_scale=target.head_dim**-0.5,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        rope=target.rope,
        max_positions=target.max_positions,
        target_hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        head_vocab_size=target.vocab_size,
        feature_layers=target.default_feature_layers,
        fc_bias=False,
        norm_before_fc=False,
        fc_norm=False,
        norm_before_residual=False,
        feeds_back_normed=False,
        norms_head_input=True,
        embed_scale=target.embed_scale,
        own_embedding=False,
        own_head=False,
        window=None,
    )


class DraftModel(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Float32 weights under our names (``builder/draft/checkpoint.py``); linears run in the autocast's dtype.

    ``ranking_down`` [r, d] and ``ranking_vocabulary`` [V, r] are the speculative vocabulary.
    """

    def __init__(self, spec: DraftSpec, *, rank: int, max_length: int, seed: int) -> None:
        super().__init__()
        self.spec = spec
        hidden, heads, kv = spec.hidden_size, spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        shapes = {
            "fc": (hidden, spec.feature_size),
            "q_proj": (heads, 2 * hidden),
            "k_proj": (kv, 2 * hidden),
            "v_proj": (kv, 2 * hidden),
            "o_proj": (hidden, heads),
            "gate_proj": (spec.intermediate_size, hidden),
            "up_proj": (spec.intermediate_size, hidden),
            "down_proj": (hidden, spec.intermediate_size),
        }
        generator = torch.Generator().manual_seed(seed)
        self.linears = nn.ParameterDict(
            {name: nn.Parameter(_start(name, shape, generator)) for name, shape in shapes.items()}
        )
        names = ("embedding_norm", "hidden_norm", "mlp_norm", "norm")
        self.norms = nn.ParameterDict({name: nn.Parameter(torch.ones(hidden)) for name in names})
        self.ranking_down = nn.Parameter(torch.zeros(rank, hidden))
        self.ranking_vocabulary = nn.Parameter(torch.zeros(spec.vocab_size, rank))
        cos, sin = (torch.from_numpy(t).float() for t in rope_tables(spec.rope, spec.head_dim, max_length))
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def start_from_target(self, final_norm: torch.Tensor, feature_size: float) -> None:
        """The head's norm begins as the target's (offset added); ``fc`` brings features to a size of one.

        ``feature_size``: root mean square of the last feature. A residual of hundreds (Gemma's) would leave what the
        layer adds without weight for most of a run: norms look at direction alone.
        """
        with torch.no_grad():
            self.norms["norm"].copy_(final_norm)
            self.linears["fc"].div_(feature_size)

    def unroll(self, embedded: torch.Tensor, features: torch.Tensor, num_steps: int) -> list[torch.Tensor]:
        """Training-time test: the head's inputs of ``num_steps`` draft steps, each [B, T, d].

        ``embedded`` [B, T, d]: (scaled) embedding of each entry's token; ``features`` [B, T, 3 d_target]. In step s the
        entry e was drafted s steps behind the last known feature, that of entry e - s: its hidden state comes from
        entry e - 1 in step s - 1, and it sees the first step's columns up to e - s and one column of each later step,
        its own chain's. Rows e < s of step s mean nothing.
        """
        hidden = self._linear("fc", features)
        results: list[torch.Tensor] = []
        keys: list[torch.Tensor] = []
        values: list[torch.Tensor] = []
        for step in range(num_steps):
            if step:
                hidden = functional.pad(hidden, (0, 0, 1, 0))[:, :-1]
            hidden, key, value = self._layer(embedded, hidden.float(), keys, values)
            keys.append(key)
            values.append(value)
            results.append(self._norm("norm", hidden))
        return results

    def _layer(
        self, embedded: torch.Tensor, hidden: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """One step of all entries behind the steps in ``keys``: the fed-back state, and its own keys and values."""
        spec = self.spec
        x = torch.cat([self._norm("embedding_norm", embedded), self._norm("hidden_norm", hidden)], dim=-1)
        q, k, v = (
            self._linear(f"{part}_proj", x).view(*x.shape[:2], -1, spec.head_dim).transpose(1, 2) for part in "qkv"
        )
        cos, sin = self.cos[: x.shape[1]], self.sin[: x.shape[1]]
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        attended = attend_chain(q, [*keys, k], [*values, v], spec.attention_scale)
        hidden = hidden + self._linear("o_proj", attended.transpose(1, 2).flatten(2)).float()
        x = self._norm("mlp_norm", hidden)
        gated = activate(spec.activation, self._linear("gate_proj", x)) * self._linear("up_proj", x)
        return hidden + self._linear("down_proj", gated).float(), k, v

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        weight = self.norms[name]
        return functional.rms_norm(x.float(), weight.shape, weight, self.spec.norm_eps)

    def _linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.linears[name])


def _start(name: str, shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    """``fc`` begins as the last feature, the layer's results near zero: the first hidden state is the target's own."""
    if name == "fc":
        weight = torch.randn(shape, generator=generator) * 0.02 / shape[1] ** 0.5
        weight[:, -shape[0] :] += torch.eye(shape[0])
        return weight
    scale = 0.1 if name in ("o_proj", "down_proj") else 1.0
    return torch.randn(shape, generator=generator) * scale / shape[1] ** 0.5
