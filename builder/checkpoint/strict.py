"""Strict loading: the tensors of a checkpoint are exactly those that its config asks for, each in the right shape."""

import re
from collections.abc import Mapping

from draftsmith.builder.errors import CheckpointError
from draftsmith.builder.model import HEAD, expected_tensors
from draftsmith.builder.spec.target import ModelSpec

from .source import TensorFacts

# Buffers that old exporters saved; what they hold follows from the config.
HARMLESS = re.compile(r"(^|\.)(rotary_emb\.inv_freq|rotary_emb\.(cos|sin)_cached|masked_bias|attn\.bias)$")


def check_tensors(spec: ModelSpec, tensors: Mapping[str, TensorFacts], where: str) -> None:
    """Raise ``CheckpointError`` naming the first missing, surplus or misshapen tensor and how many there are.

    Tolerated: rotary buffers, and ``lm_head.weight`` where the head is tied (a copy of the embedding).
    """
    expected = expected_tensors(spec)
    missing = [name for name in expected if name not in tensors]
    if missing:
        raise CheckpointError(
            f"tensor `{missing[0]}`",
            expected=f"it in the checkpoint with shape {list(expected[missing[0]])}",
            found=_others("none", missing),
            where=where,
            action=_untied_hint(missing[0]),
        )
    for name, shape in expected.items():
        if tensors[name].shape != shape:
            raise CheckpointError(
                f"tensor `{name}`", expected=f"shape {list(shape)}", found=f"{list(tensors[name].shape)}", where=where
            )
    surplus = [
        n for n in tensors if n not in expected and not HARMLESS.search(n) and not (spec.tied_head and n == HEAD)
    ]
    if surplus:
        raise CheckpointError(
            f"tensor `{surplus[0]}`",
            expected="no tensor that the config does not ask for",
            found=_others("it", surplus),
            where=where,
            action="The config does not belong to these weights, or the model has a part that is not supported.",
        )


def _others(found: str, names: list[str]) -> str:
    return found if len(names) == 1 else f"{found}, and {len(names) - 1} more like it"


def _untied_hint(name: str) -> str:
    if name == HEAD:
        return "The config says tie_word_embeddings: false, so the head must be in the file."
    return "The download is incomplete or the config does not belong to these weights."
