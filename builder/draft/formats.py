"""What tells the formats of EAGLE-3 drafts apart, and where they mean different things by the same words.

Sources: EAGLE's ``cnets.py``, vLLM's ``llama_eagle3.py``, speculators' ``Eagle3SpeculatorConfig`` (0.9), SpecForge's
exported configs and its pull request 879 (``norm_output``), ModelOpt's configuration reference, TensorRT-LLM's EAGLE-3
loader.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .checkpoint import DraftFormat

NormOutput = Literal["feeds back", "head input"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatFacts:
    """``names_outputs``: layer ids name layer outputs, one before the inputs that ``DraftSpec`` counts.

    ``norm_output``: what that key means, "feeds back" the normed state (default false) or norms the "head input"
    (default true); ``norm_output_doubt``: why files of this format may mean something else, "" where all agree.
    ``residual_reason``: why ``norm_before_residual`` is false where the file does not say.
    """

    title: str
    names_outputs: bool
    norm_output: NormOutput
    residual_reason: str
    norm_output_doubt: str = ""


SPECFORGE_RESIDUAL = "SpecForge's model has no such switch and keeps the state as it came as residual"
FORMATS: Mapping[DraftFormat, FormatFacts] = {
    "eagle3": FormatFacts(
        title="original EAGLE-3",
        names_outputs=False,
        norm_output="feeds back",
        residual_reason="EAGLE's own model keeps the state as it came as residual",
    ),
    "specforge": FormatFacts(
        title="SpecForge",
        names_outputs=True,
        norm_output="feeds back",
        residual_reason=SPECFORGE_RESIDUAL,
        norm_output_doubt="SpecForge before September 2026 trained with another meaning: whether the head's input is"
        ' normed. Say "draftsmith": {"norm_output": "head input"} in config.json for such a draft',
    ),
    "specvocab": FormatFacts(
        title="SpecVocab (SpecForge style)",
        names_outputs=True,
        norm_output="head input",
        residual_reason=SPECFORGE_RESIDUAL,
        norm_output_doubt="as SpecForge before September 2026 meant it; later, that the normed state is fed back."
        ' Say "draftsmith": {"norm_output": "feeds back"} in config.json for such a draft',
    ),
    "speculators": FormatFacts(
        title="speculators",
        names_outputs=False,
        norm_output="feeds back",
        residual_reason="the default of speculators' own config class; vLLM's loader would take true",
    ),
    "modelopt": FormatFacts(
        title="ModelOpt",
        names_outputs=True,
        norm_output="feeds back",
        residual_reason="TensorRT-LLM, which these drafts are exported for, keeps the state as it came as residual",
    ),
}
# Keys that ModelOpt alone writes into ``eagle_config``.
MODELOPT_KEYS = {
    "use_last_layernorm",
    "use_input_layernorm_in_first_layer",
    "use_mtp_layernorm",
    "next_layer_regular",
    "parallel_draft_step",
    "has_lm_head",
}
DRAFT_KEYS = ("draft_vocab_size", "eagle_config", "speculators_model_type", "speculators_config")


def is_draft_config(config: Mapping[str, Any]) -> bool:
    """Whether a config is a draft's rather than a language model's."""
    architectures = config.get("architectures")
    names = architectures if isinstance(architectures, list) else []
    return (
        "vocabulary_speculator" in config
        or any(key in config for key in DRAFT_KEYS)
        or any("eagle" in str(name).lower() for name in names)
    )


def has_draft_tensors(names: Collection[str]) -> bool:
    """Whether stored names are a draft's: it fuses its inputs and has a single layer."""
    plain = {name.removeprefix("model.") for name in names}
    return "fc.weight" in plain and not any(name.startswith("layers.1.") for name in plain)


def detect_format(config: Mapping[str, Any], layer_prefix: str, tensor_names: Collection[str]) -> DraftFormat:
    """The format of a draft's config; ``layer_prefix`` and ``tensor_names`` (ours) decide where the config fits two."""
    if "speculators_model_type" in config or "speculators_config" in config:
        return "speculators"
    if "vocabulary_speculator" in config or any(name.startswith("ranking_") for name in tensor_names):
        return "specvocab"
    nested = config.get("eagle_config")
    if isinstance(nested, dict) and MODELOPT_KEYS & set(nested):
        return "modelopt"
    architectures = config.get("architectures")
    names = architectures if isinstance(architectures, list) else []
    if "LlamaForCausalLMEagle3" in names:
        return "modelopt" if layer_prefix == "layers.0." else "specforge"
    return "eagle3"
