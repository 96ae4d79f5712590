"""Stored tensor names -> the names of a text-only causal model, where a multimodal model wraps it."""

from collections.abc import Iterable

from draftsmith.builder.errors import CheckpointError

# transformers 4 and 5 spelling of the language model's and of the other parts' prefixes.
TEXT_PREFIXES = {
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "model.language_model.": "model.",
}
OTHER_PARTS = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")


def canonical_names(stored: Iterable[str], *, multimodal: bool, where: str) -> dict[str, str]:
    """Canonical name -> stored name. Parts that see images are left out of a multimodal checkpoint, text is kept."""
    names: dict[str, str] = {}
    for name in stored:
        canonical = name
        if multimodal:
            if name.startswith(OTHER_PARTS):
                continue
            for prefix, plain in TEXT_PREFIXES.items():
                if name.startswith(prefix):
                    canonical = plain + name.removeprefix(prefix)
                    break
        if canonical in names:
            raise CheckpointError(
                f"tensor `{canonical}`", expected="one", found=f"{names[canonical]} and {name}", where=where
            )
        names[canonical] = name
    return names
