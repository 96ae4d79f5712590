"""The one table of draft tensor names: what each format stores -> our names (``checkpoint.py`` lists ours).

The layer's tensors lie under ``midlayer.`` (original EAGLE-3, SpecForge) or ``layers.0.`` (speculators, ModelOpt); any
name may have ``model.`` before it. A float tensor X may be stored as ``X.codes`` (int8 [rows, columns]) and
``X.scales`` (float32 [rows]), its value codes * scales: our own shipped form.
"""

import re
from collections.abc import Iterable, Mapping

from ..errors import CheckpointError

LAYER_PREFIXES = ("midlayer.", "layers.0.")
# Names behind a layer prefix, without .weight or .bias -> ours.
LAYER_NAMES: Mapping[str, str] = {
    "input_layernorm": "embedding_norm",
    "hidden_norm": "hidden_norm",
    "post_attention_layernorm": "mlp_norm",
    **{f"self_attn.{part}_proj": f"{part}_proj" for part in "qkvo"},
    **{f"mlp.{part}_proj": f"{part}_proj" for part in ("gate", "up", "down")},
}
# Names outside the layer -> ours.
OUTER_NAMES: Mapping[str, str] = {
    "fc": "fc",
    "input_norm": "fc_input_norm",
    "norm": "norm",
    "embed_tokens": "embed_tokens",
    "lm_head": "lm_head",
}
# Ranking of a speculative vocabulary. ``down_proj`` and ``vocab_proj`` are what builder/train writes; the other ones
# are guesses, since SpecVocab's names are not published where we could read them.
RANKING_DOWN, RANKING_VOCABULARY = "ranking_down.weight", "ranking_vocabulary.weight"
RANKING_PREFIX = "vocabulary_speculator."
RANKING_NAMES: Mapping[str, str] = {
    "down_proj": RANKING_DOWN,
    "down": RANKING_DOWN,
    "in_proj": RANKING_DOWN,
    "vocab_proj": RANKING_VOCABULARY,
    "vocabulary": RANKING_VOCABULARY,
    "up_proj": RANKING_VOCABULARY,
    "out_proj": RANKING_VOCABULARY,
}
# Vocabulary maps: whole numbers, without .weight.
OFFSETS, MASK, DIRECT_IDS = "d2t", "t2d", "vocab_map"
MAP_NAMES: Mapping[str, str] = {OFFSETS: OFFSETS, MASK: MASK, DIRECT_IDS: DIRECT_IDS, "draft_id_to_target_id": OFFSETS}
CODES, SCALES = ".codes", ".scales"
# Buffers that follow from the config, and the target's parts that speculators keeps while it trains.
HARMLESS = re.compile(
    r"(^|\.)(rotary_emb\.(inv_freq|original_inv_freq|cos_cached|sin_cached)|verifier_(norm|lm_head)\.weight)$"
)


def to_our_name(stored: str) -> str | None:
    """Our name of a stored tensor, ``.codes`` and ``.scales`` kept; None for one that no format has."""
    for ending in (CODES, SCALES):
        if stored.endswith(ending):
            plain = to_our_name(stored.removesuffix(ending))
            return None if plain is None else plain + ending
    name = stored.removeprefix("model.")
    if name in MAP_NAMES:
        return MAP_NAMES[name]
    stem, _, kind = name.rpartition(".")
    if kind not in ("weight", "bias"):
        return None
    for prefix in LAYER_PREFIXES:
        if stem.startswith(prefix):
            ours = LAYER_NAMES.get(stem.removeprefix(prefix))
            return None if ours is None else f"{ours}.{kind}"
    if stem.startswith(RANKING_PREFIX) and kind == "weight":
        return RANKING_NAMES.get(stem.removeprefix(RANKING_PREFIX))
    if re.fullmatch(r"fc_norm\.\d{1,3}", stem):
        return f"{stem}.{kind}"
    return f"{OUTER_NAMES[stem]}.{kind}" if stem in OUTER_NAMES else None


def to_stored_name(ours: str, *, prefix: str) -> str:
    """The usual stored name of one of ours, for messages; ``prefix`` is the layer's."""
    if ours in (RANKING_DOWN, RANKING_VOCABULARY):
        return RANKING_PREFIX + ("down_proj" if ours == RANKING_DOWN else "vocab_proj") + ".weight"
    stem, _, kind = ours.rpartition(".")
    for table, before in ((LAYER_NAMES, prefix), (OUTER_NAMES, "")):
        for stored, name in table.items():
            if name == stem:
                return f"{before}{stored}.{kind}"
    return ours


def translate_names(stored: Iterable[str], where: str) -> tuple[dict[str, str], list[str]]:
    """Our name -> stored name, and the harmless tensors that are left out.

    Raises ``CheckpointError`` naming a tensor that no format has, or one that is stored under two names.
    """
    names: dict[str, str] = {}
    harmless: list[str] = []
    for name in stored:
        ours = to_our_name(name)
        if ours is None:
            if HARMLESS.search(name):
                harmless.append(name)
                continue
            raise CheckpointError(
                f"tensor `{name}`",
                expected="no tensor beside those of an EAGLE-3 draft of one layer",
                found="it",
                where=where,
                action="The draft has a part that is not supported; nothing is ever left out silently.",
            )
        if ours in names:
            raise CheckpointError(f"tensor `{ours}`", expected="one", found=f"{names[ours]} and {name}", where=where)
        names[ours] = name
    return names, harmless
