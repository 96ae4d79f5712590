"""Rotary embedding settings of a config -> ``RopeSpec``, old (``rope_scaling``) and new (``rope_parameters``) spelling.

Source of the meanings and defaults: transformers ``modeling_rope_utils.py``.
"""

from typing import get_args

from draftsmith.builder.spec.target import RopeKind, RopeSpec

from .config import Config

KNOWN_KEYS = {
    "rope_type",
    "type",
    "rope_theta",
    "factor",
    "original_max_position_embeddings",
    "low_freq_factor",
    "high_freq_factor",
    "beta_fast",
    "beta_slow",
    "attention_factor",
    "mscale",
    "mscale_all_dim",
    "truncate",
    "partial_rotary_factor",
    "finetuned",
    "max_position_embeddings",
}


def read_rope(config: Config, *, default_theta: float, max_positions: int, layer_type: str | None = None) -> RopeSpec:
    """The rope of a config.

    ``layer_type`` ("full_attention", ...) picks the entry where ``rope_parameters`` is nested per layer type. Raises
    ``CheckpointError`` naming an unknown kind or key.
    """
    section = config.section("rope_scaling") or config.section("rope_parameters")
    if section is not None and layer_type is not None and isinstance(section.values.get(layer_type), dict):
        section = section.section(layer_type)
    theta = config.number("rope_theta", default_theta)
    if section is None:
        return RopeSpec(kind="default", theta=theta)
    return rope_from_section(section, config, theta=theta, max_positions=max_positions)


def rope_from_section(section: Config, config: Config, *, theta: float, max_positions: int) -> RopeSpec:
    """One rope object; ``config`` is the whole config, where some exporters leave the original maximum."""
    kind = _kind(section)
    theta = section.number("rope_theta", theta)
    unknown = sorted(set(section.values) - KNOWN_KEYS)
    if unknown:
        raise section.error(unknown[0], "a known rope setting", repr(section.values[unknown[0]]), "Not supported.")
    if section.number("partial_rotary_factor", 1.0) != 1.0:
        raise section.error("partial_rotary_factor", "1", repr(section.values["partial_rotary_factor"]))
    if kind == "default":
        return RopeSpec(kind=kind, theta=theta)
    factor = section.number("factor")
    if kind == "linear":
        return RopeSpec(kind=kind, theta=theta, factor=factor)
    original = _original_positions(section, config, max_positions, required=kind == "llama3")
    if kind == "dynamic":
        return RopeSpec(kind=kind, theta=theta, factor=factor, original_max_positions=max_positions)
    if kind == "llama3":
        low, high = section.number("low_freq_factor"), section.number("high_freq_factor")
        if high <= low:
            raise section.error("high_freq_factor", f"a number above low_freq_factor {low}", repr(high))
        return RopeSpec(
            kind=kind,
            theta=theta,
            factor=factor,
            original_max_positions=original,
            low_freq_factor=low,
            high_freq_factor=high,
        )
    return _read_yarn(section, theta=theta, factor=factor, original=original)


def _read_yarn(section: Config, *, theta: float, factor: float, original: int) -> RopeSpec:
    return RopeSpec(
        kind="yarn",
        theta=theta,
        factor=factor,
        original_max_positions=original,
        beta_fast=section.number("beta_fast", 32.0),
        beta_slow=section.number("beta_slow", 1.0),
        attention_factor=section.number("attention_factor") if section.has("attention_factor") else None,
        mscale=section.number("mscale") if section.has("mscale") else None,
        mscale_all_dim=section.number("mscale_all_dim") if section.has("mscale_all_dim") else None,
        truncate=section.flag("truncate", True),
    )


def _kind(section: Config) -> RopeKind:
    name = section.values.get("rope_type", section.values.get("type", "default"))
    for kind in get_args(RopeKind):
        if name == kind:
            return kind  # type: ignore[no-any-return]
    raise section.error("rope_type", f"one of {', '.join(get_args(RopeKind))}", repr(name), "Not supported.")


def _original_positions(section: Config, config: Config, max_positions: int, *, required: bool) -> int:
    for source in (config, section):
        if source.has("original_max_position_embeddings"):
            return source.count("original_max_position_embeddings")
    return section.count("original_max_position_embeddings", None if required else max_positions)
