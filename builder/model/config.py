"""Reading a Hugging Face config: typed getters that name the key, and the keys whose meaning is not supported."""

import math
from collections.abc import Mapping
from typing import Any

from draftsmith.builder.errors import CheckpointError

# Keys that change the computation. Each must be absent or have one of these neutral values.
NEUTRAL_VALUES: Mapping[str, tuple[Any, ...]] = {
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "partial_rotary_factor": (None, 1, 1.0),
    "quantization_config": (None,),
    "compression_config": (None,),
    "num_experts": (None, 0),
    "num_local_experts": (None, 0),
    "n_routed_experts": (None, 0),
    "num_experts_per_tok": (None, 0),
    "moe_intermediate_size": (None, 0),
    "use_bidirectional_attention": (None, False),
    "is_encoder_decoder": (None, False),
    "add_cross_attention": (None, False),
    "is_decoder": (None, True, False),
    "use_mrope": (None, False),
    "no_rope_layers": (None,),
    "attention_chunk_size": (None,),
    "embedding_multiplier": (None, 1, 1.0),
    "residual_multiplier": (None, 1, 1.0),
    "attention_multiplier": (None,),
    "logits_scaling": (None, 1, 1.0),
    "logit_scale": (None, 1, 1.0),
    "clip_qkv": (None,),
    "attn_temperature_tuning": (None, False),
    "altup_num_inputs": (None,),
    "hidden_size_per_layer_input": (None, 0),
    "parallel_attn": (None, False),
    "use_qk_norm": (None, False),
    "rope_interleaved": (None, False),
    "cross_attention_layers": (None,),
}


class Config:
    """A JSON object of a checkpoint with the file it came from; wrong types raise ``CheckpointError`` with the key."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self.where = where

    def refuse_unsupported(self) -> None:
        """Raise for every key whose value would change the maths in a way that is not implemented."""
        for key, neutral in NEUTRAL_VALUES.items():
            value = self.values.get(key)
            if not any(value is n or (type(value) is not bool and value == n) for n in neutral):
                raise self.error(key, "a model without it", f"{value!r:.80}", "This feature is not supported.")

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self.values.get(key) is not None

    def count(self, key: str, default: int | None = None, *, least: int = 1, most: int = 2**31 - 1) -> int:
        """An integer between ``least`` and ``most``."""
        value = self._get(key, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.error(key, f"an integer from {least} to {most}", repr(value))
        return value

    def number(self, key: str, default: float | None = None, *, positive: bool = True) -> float:
        """A finite number, above zero unless ``positive`` is off."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, "a number", repr(value))
        number = float(value) if abs(value) < 1e300 else float("inf")
        if not math.isfinite(number) or (positive and number <= 0):
            raise self.error(key, "a finite number above zero" if positive else "a finite number", repr(value))
        return number

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, "true or false", repr(value))
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self.error(key, "a string", repr(value))
        return value

    def section(self, key: str) -> "Config | None":
        """A nested object, None where absent or null."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(key, "an object", repr(value)[:80])
        return Config(value, f"{self.where}, {key}")

    def error(self, key: str, expected: str, found: str, action: str = "") -> CheckpointError:
        """The error for a key, to be raised."""
        return CheckpointError(f"config key `{key}`", expected=expected, found=found, where=self.where, action=action)

    def _get(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        if value is not None:
            return value
        if default is None:
            raise self.error(key, "a value", "none", "The checkpoint's config is incomplete.")
        return default
