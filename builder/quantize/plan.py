"""The INT8 plan of a checkpoint: a number of planes and codes for every joined linear, chosen on calibration text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..checkpoint.source import Checkpoint
from ..progress import Progress
from ..spec.target import ModelSpec
from .calibration import Calibration, SeenLinear
from .choice import MAX_PLANES, Choice, choose, observe, relative_cost
from .rounding import compensate_rounding
from .scheme import Int8Embedding, Int8Linear
from .text import encode_documents, read_shipped, split_text

FloatArray = npt.NDArray[np.float32]
MAX_CALIBRATION_TOKENS = 2560
DEFAULT_ERROR_BUDGET = 0.003
"""KL per token (nats) that 8-bit instead of 16-bit activations may cost; rounding the weights comes on top."""
MAX_SHARE = 3.0
"""A linear may use unspent shares of others, up to this many times its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Plan:
    """Plans by joined name, the embedding's plan, and what the manifest says of them.

    ``norm_factors`` [d] by norm ("layers.0.input_norm", "layers.0.mlp_norm", "final_norm"): the graph divides the
    norm's weight by them, since the codes behind it were multiplied.
    """

    linears: Mapping[str, Int8Linear]
    embedding: Int8Embedding
    norm_factors: Mapping[str, FloatArray]
    table: Mapping[str, Mapping[str, Any]]
    beyond_half: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "linears": {name: dict(row) for name, row in self.table.items()},
            "activation_bits": {
                str(8 * planes): sum(plan.planes == planes for plan in self.linears.values())
                for planes in range(1, MAX_PLANES + 1)
            },
            "beyond_fp16": list(self.beyond_half),
        }


def plan_int8(
    checkpoint: Checkpoint,
    *,
    error_budget: float | None,
    calibration_text: str | None,
    num_threads: int,  # noqa: ARG001 (NumPy's threads are the process's)
    progress: Progress,
) -> Int8Plan:
    """Calibrate ``checkpoint`` and choose; ``error_budget``: see ``DEFAULT_ERROR_BUDGET``."""
    documents = read_shipped("calibration") if calibration_text is None else split_text(calibration_text)
    sequences = encode_documents(documents, checkpoint.tokenizer, MAX_CALIBRATION_TOKENS)
    budget = DEFAULT_ERROR_BUDGET if error_budget is None else error_budget
    calibration = Calibration(checkpoint, sequences)
    planner = _Planner(spec=checkpoint.spec, budget=budget)
    calibration.run(planner.plan_head, planner.plan_layer, progress)
    order = sorted(planner.linears, key=_position)
    return Int8Plan(
        linears={name: planner.linears[name] for name in order},
        embedding=Int8Embedding(),
        norm_factors=planner.norm_factors,
        table={name: planner.table[name] for name in order},
        beyond_half=tuple(calibration.beyond_half),
    )


def _position(name: str) -> tuple[int, int]:
    """The order of use: layers, then the head."""
    if name == "head":
        return (1 << 30, 0)
    _, index, kind = name.split(".")
    return (int(index), ("qkv", "o", "gate_up", "down").index(kind))


@dataclass(slots=True, kw_only=True)
class _Planner:
    """Plans the linears as calibration shows them, from the head backwards; unspent budget is passed on."""

    spec: ModelSpec
    budget: float
    linears: dict[str, Int8Linear] = field(default_factory=dict)
    norm_factors: dict[str, FloatArray] = field(default_factory=dict)
    table: dict[str, dict[str, Any]] = field(default_factory=dict)
    unspent: float = 0.0

    def plan_head(self, seen: SeenLinear) -> None:
        choice = self._choose("head", seen)
        self.norm_factors["final_norm"] = choice.factors
        self._finish("head", seen, choice, None)

    def plan_layer(self, index: int, seen: dict[str, SeenLinear]) -> None:
        name = f"layers.{index}"
        for kind in ("channel_max", "other_max"):
            setattr(seen["o"], kind, self._share_in_group(getattr(seen["o"], kind)))
        choices = {kind: self._choose(f"{name}.{kind}", linear) for kind, linear in seen.items()}
        self.norm_factors[f"{name}.input_norm"] = choices["qkv"].factors
        self.norm_factors[f"{name}.mlp_norm"] = choices["gate_up"].factors
        before = {"qkv": self._value_factors(choices["o"]), "gate_up": self._up_factors(choices["down"])}
        for kind, choice in choices.items():
            self._finish(f"{name}.{kind}", seen[kind], choice, before.get(kind))

    def _choose(self, name: str, seen: SeenLinear) -> Choice:
        num_inputs, num_outputs = seen.weight.shape
        share = self.budget * relative_cost(2, num_inputs, num_outputs) / self._total_cost()
        self.unspent += share
        choice = choose(seen.weight, observe(seen), min(self.unspent, MAX_SHARE * share))
        self.unspent -= choice.activation_kl
        self.table[name] = {
            "bits": 8 * choice.planes,
            "step": choice.step,
            "exponent": choice.exponent,
            "activation_kl": choice.activation_kl,
            "weight_kl": choice.weight_kl,
        }
        return choice

    def _finish(self, name: str, seen: SeenLinear, choice: Choice, output_divisors: FloatArray | None) -> None:
        """Round the weights; ``output_divisors`` [d_out]: factors of the linear that reads these outputs."""
        codes, scales = compensate_rounding(seen.weight, seen.moment, choice.factors)
        self.linears[name] = Int8Linear(
            planes=choice.planes,
            step=choice.step,
            codes=codes,
            scales=scales if output_divisors is None else scales / output_divisors,
            bias_factors=None if output_divisors is None else 1 / output_divisors,
        )

    def _share_in_group(self, channel_max: FloatArray) -> FloatArray:
        """Heads that read the same values must share the factors that are put on the values."""
        spec = self.spec
        grouped = channel_max.reshape(spec.num_kv_heads, -1, spec.head_dim)
        return np.broadcast_to(grouped.max(axis=1, keepdims=True), grouped.shape).reshape(-1)

    def _value_factors(self, choice: Choice) -> FloatArray:
        """Of the joined q, k and v: the values are divided by what ``o`` expects, q and k are left alone."""
        spec = self.spec
        values = choice.factors.reshape(spec.num_kv_heads, -1, spec.head_dim)[:, 0].reshape(-1)
        others = (spec.num_heads + spec.num_kv_heads) * spec.head_dim
        return np.concatenate([np.ones(others, np.float32), values])

    def _up_factors(self, choice: Choice) -> FloatArray:
        """Of the joined gate and up: up is divided by what ``down`` expects."""
        return np.concatenate([np.ones_like(choice.factors), choice.factors])

    def _total_cost(self) -> float:
        spec = self.spec
        heads, values = spec.num_heads * spec.head_dim, 2 * spec.num_kv_heads * spec.head_dim
        hidden, middle = spec.hidden_size, spec.intermediate_size
        shapes = ((hidden, heads + values), (heads, hidden), (hidden, 2 * middle), (middle, hidden))
        layer = sum(relative_cost(2, *shape) for shape in shapes)
        return spec.num_layers * layer + relative_cost(2, hidden, spec.vocab_size)
