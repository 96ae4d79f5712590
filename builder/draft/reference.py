"""The EAGLE-3 draft in NumPy, float32 or float64, with every switch of ``DraftSpec``: for fitting, and as an oracle.

It shares nothing with the graphs but the rotary tables. Ids are the target's; entry e of a sequence takes the target's
features of position e and the token of position e + 1, and what comes out predicts the token of position e + 2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..graph.rope import rope_tables
from ..spec.draft import DraftSpec

Array = npt.NDArray[np.floating[Any]]
Index = npt.NDArray[np.integer[Any]]
Mask = npt.NDArray[np.bool_]
ReadTensor = Callable[[str], npt.NDArray[np.float32]]
_TANH_FACTOR = np.sqrt(2 / np.pi)


@dataclass(frozen=True, slots=True)
class DraftCache:
    """Rotated keys and values [K, S, D], and the positions [S] they were written at."""

    keys: Array
    values: Array
    positions: Index


@dataclass(frozen=True, slots=True)
class DraftStep:
    """``hidden_out`` [T, d]: what the next step is fed; ``head_input`` [T, d]: what the head reads; the grown cache."""

    hidden_out: Array
    head_input: Array
    cache: DraftCache


class ReferenceDraft:
    """One draft's weights. ``embedding``: the target's [V, d], read where the draft has none of its own."""

    def __init__(
        self,
        spec: DraftSpec,
        read: ReadTensor,
        *,
        embedding: npt.NDArray[np.float32] | None,
        dtype: type[np.float32 | np.float64] = np.float32,
    ) -> None:
        self.spec = spec
        self._dtype = dtype
        self._weights: dict[str, Array] = {name: read(name).astype(dtype) for name in _tensor_names(spec)}
        table = read("embed_tokens.weight") if spec.own_embedding else embedding
        if table is None or table.shape != (spec.vocab_size, spec.hidden_size):
            expected = [spec.vocab_size, spec.hidden_size]
            raise ValueError(f"draft embedding: expected {expected}, found {None if table is None else table.shape}")
        self._embedding = table

    def fuse(self, features: Array) -> Array:
        """The target's features [T, 3 d_target] -> the hidden state [T, d] of a first step."""
        spec, weights = self.spec, self._weights
        x: Array = np.asarray(features, self._dtype)
        if spec.norm_before_fc:
            x = self._norm(x, "fc_input_norm")
        elif spec.fc_norm:
            parts = np.split(x, len(spec.feature_layers), axis=-1)
            x = np.concatenate([self._norm(part, f"fc_norm.{i}") for i, part in enumerate(parts)], axis=-1)
        y = x @ weights["fc.weight"].T
        return np.asarray(y + weights["fc.bias"] if spec.fc_bias else y)

    def step(
        self,
        token_ids: Index,
        hidden: Array,
        positions: Index,
        cache: DraftCache | None = None,
        visible: Mask | None = None,
    ) -> DraftStep:
        """``token_ids``, ``positions`` [T], ``hidden`` [T, d] of this step's entries, behind S cached ones.

        ``visible`` [T, S + T]: the columns a token may read, itself among them; None: every column up to its own. The
        window of the draft applies as well, by positions.
        """
        spec = self.spec
        hidden = np.asarray(hidden, self._dtype)
        embedded: Array = self._embedding[token_ids].astype(self._dtype)
        normed = self._norm(hidden, "hidden_norm")
        residual = normed if spec.norm_before_residual else hidden
        x = np.concatenate([self._norm(embedded * spec.embed_scale, "embedding_norm"), normed], axis=-1)  # [T, 2 d]
        query, fresh = self._heads(x, positions)
        cache = fresh if cache is None else _append(cache, fresh)
        attended = self._attend(query, cache, self._mask(positions, cache, visible))
        residual = residual + self._linear(attended, "o_proj", spec.o_bias)
        y = residual + self._mlp(self._norm(residual, "mlp_norm"))
        final = self._norm(y, "norm")
        return DraftStep(
            hidden_out=final if spec.feeds_back_normed else y,
            head_input=final if spec.norms_head_input else y,
            cache=cache,
        )

    def prefill(self, next_ids: Index, features: Array) -> DraftStep:
        """First steps of a whole sequence: ``next_ids`` [n], the token behind each of ``features`` [n, 3 d_target]."""
        return self.step(next_ids, self.fuse(features), np.arange(len(next_ids)))

    def chain(self, next_ids: Index, features: Array, num_steps: int) -> list[Array]:
        """``head_input`` of draft steps 1 to ``num_steps``, fed with the text's own tokens instead of drafted ones.

        Row i of step j [n - j + 1, d] is entry i + j - 1, drafted j - 1 steps behind the last known feature, that of
        entry i: it reads the first steps' columns up to there, and its own chain's.
        """
        size = len(next_ids)
        positions = np.arange(size)
        step = self.prefill(next_ids, features)
        results = [step.head_input]
        for number in range(2, num_steps + 1):
            fed = np.concatenate([step.hidden_out[:1], step.hidden_out[:-1]])
            visible = np.concatenate(
                [positions[None, :] <= positions[:, None] - number + 1, *_chain_masks(size, number)], 1
            )
            step = self.step(next_ids, fed, positions, step.cache, visible)
            results.append(step.head_input[number - 1 :])
        return results

    def _norm(self, x: Array, name: str) -> Array:
        mean = np.mean(np.square(x), axis=-1, keepdims=True)
        return np.asarray(x / np.sqrt(mean + self._dtype(self.spec.norm_eps)) * self._weights[f"{name}.weight"])

    def _linear(self, x: Array, name: str, has_bias: bool) -> Array:
        y = x @ self._weights[f"{name}.weight"].T
        return np.asarray(y + self._weights[f"{name}.bias"] if has_bias else y)

    def _heads(self, x: Array, positions: Index) -> tuple[Array, DraftCache]:
        """Rotated queries [H, T, D], and this step's part of the cache."""
        spec = self.spec
        q, k, v = (
            self._linear(x, f"{part}_proj", spec.qkv_bias).reshape(len(x), -1, spec.head_dim).transpose(1, 0, 2)
            for part in "qkv"
        )
        cos, sin = rope_tables(spec.rope, spec.head_dim, int(np.max(positions, initial=0)) + 1)
        cos, sin = cos[positions].astype(self._dtype), sin[positions].astype(self._dtype)
        return _rotate(q, cos, sin), DraftCache(_rotate(k, cos, sin), v, np.asarray(positions))

    def _mask(self, positions: Index, cache: DraftCache, visible: Mask | None) -> Mask:
        """[T, S + T]."""
        size, total = len(positions), len(cache.positions)
        if visible is None:
            visible = np.arange(total)[None, :] <= np.arange(total - size, total)[:, None]
        if self.spec.window is None:
            return visible
        return visible & (positions[:, None] - cache.positions[None, :] < self.spec.window)

    def _attend(self, query: Array, cache: DraftCache, visible: Mask) -> Array:
        """[T, H D]."""
        group = self.spec.num_heads // self.spec.num_kv_heads
        results = []
        for head, q in enumerate(query):
            scores = q @ cache.keys[head // group].T * self._dtype(self.spec.attention_scale)
            scores = np.where(visible, scores, -np.inf)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            results.append(weights / weights.sum(axis=-1, keepdims=True) @ cache.values[head // group])
        return np.concatenate(results, axis=-1)

    def _mlp(self, x: Array) -> Array:
        bias = self.spec.mlp_bias
        gate = self._linear(x, "gate_proj", bias)
        return self._linear(self._activate(gate) * self._linear(x, "up_proj", bias), "down_proj", bias)

    def _activate(self, x: Array) -> Array:
        if self.spec.activation == "silu":
            return np.asarray(x * 0.5 * (1 + np.tanh(0.5 * x)))
        return np.asarray(0.5 * x * (1 + np.tanh(self._dtype(_TANH_FACTOR) * (x + self._dtype(0.044715) * x**3))))


def _tensor_names(spec: DraftSpec) -> list[str]:
    """Every weight but embedding and head."""
    names = ["fc", "embedding_norm", "hidden_norm", "mlp_norm", "norm"]
    names += [f"{part}_proj" for part in ("q", "k", "v", "o", "gate", "up", "down")]
    if spec.norm_before_fc:
        names.append("fc_input_norm")
    elif spec.fc_norm:
        names += [f"fc_norm.{i}" for i in range(len(spec.feature_layers))]
    biased = {"fc": spec.fc_bias, "o_proj": spec.o_bias}
    biased |= {f"{part}_proj": spec.qkv_bias for part in "qkv"}
    biased |= {f"{part}_proj": spec.mlp_bias for part in ("gate", "up", "down")}
    return [f"{name}.weight" for name in names] + [f"{name}.bias" for name, has in biased.items() if has]


def _append(cache: DraftCache, fresh: DraftCache) -> DraftCache:
    return DraftCache(
        np.concatenate([cache.keys, fresh.keys], axis=1),
        np.concatenate([cache.values, fresh.values], axis=1),
        np.concatenate([cache.positions, fresh.positions]),
    )


def _chain_masks(size: int, number: int) -> list[Mask]:
    """Step ``number``'s view [n, n] of the columns of steps 2 to ``number``: its own chain's entry in each."""
    return [np.eye(size, k=step - number, dtype=bool) for step in range(2, number + 1)]


def _rotate(x: Array, cos: Array, sin: Array) -> Array:
    """``x`` [heads, T, D], ``cos`` and ``sin`` [T, D / 2]."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
