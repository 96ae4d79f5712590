"""Which reader a config's ``model_type`` asks for."""

from collections.abc import Callable, Mapping
from typing import Any

from draftsmith.builder.errors import CheckpointError
from draftsmith.builder.spec.target import ModelSpec

from .config import Config
from .gemma3 import read_gemma3
from .llama import read_llama, read_mistral
from .qwen2 import read_qwen2
from .qwen3 import read_qwen3

READERS: Mapping[str, Callable[[Config], ModelSpec]] = {
    "llama": read_llama,
    "mistral": read_mistral,
    "qwen2": read_qwen2,
    "qwen3": read_qwen3,
    "gemma3_text": read_gemma3,
}
# A multimodal config whose text part is one of the above.
TEXT_PARTS: Mapping[str, str] = {"gemma3": "gemma3_text"}


def read_model_spec(values: Mapping[str, Any], where: str) -> ModelSpec:
    """A Hugging Face config -> spec. ``where`` is the file, for errors.

    Raises ``CheckpointError`` naming the key for an unknown model type, an unsupported feature or a wrong value.
    """
    config = Config(values, where)
    model_type = config.text("model_type")
    if model_type in TEXT_PARTS:
        config.refuse_unsupported()
        text = config.section("text_config")
        if text is None:
            raise config.error("text_config", "the text model's settings", "none")
        model_type = TEXT_PARTS[model_type]
        config = Config({**_inherited(config.values), **text.values}, text.where)
    if model_type not in READERS:
        raise CheckpointError(
            f"model type `{model_type}`",
            expected=f"one of {', '.join([*READERS, *TEXT_PARTS])}",
            where=where,
            action="This architecture is not supported.",
        )
    config.refuse_unsupported()
    return READERS[model_type](config)


def _inherited(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"tie_word_embeddings": values["tie_word_embeddings"]} if "tie_word_embeddings" in values else {}
