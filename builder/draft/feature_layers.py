"""Which layers of the target a draft reads, as layer *inputs* whatever the file counts."""

from ..errors import CheckpointError
from ..model.config import Config
from ..spec.target import ModelSpec
from .formats import FormatFacts

LIST_KEY = "eagle_aux_hidden_state_layer_ids"
# TensorRT-LLM's option, which names outputs in every format.
CAPTURE_KEY = "eagle3_layers_to_capture"
NUM_DEFAULT_LAYERS = 3


def read_feature_layers(
    config: Config, facts: FormatFacts, target: ModelSpec | None, choices: list[str]
) -> tuple[int, ...]:
    """Layer inputs in the order of ``fc``'s columns; () where only the target could tell and none is given.

    Raises ``CheckpointError`` where features are switched off or an id is not one of the target's layers.
    """
    if not config.flag("use_aux_hidden_state", True):
        raise config.error(
            "use_aux_hidden_state",
            "true: features of several layers of the target",
            "false, a draft that reads the target's last hidden state alone",
            "This kind is not supported: use an EAGLE-3 draft with auxiliary hidden states.",
        )
    if config.has(LIST_KEY) or config.has(CAPTURE_KEY):
        return _read_list(config, facts, target, choices)
    names = "outputs 1, L//2-1, L-4" if facts.names_outputs else "inputs 2, L//2, L-3"
    if target is None:
        choices.append(
            f"feature layers: the file names none, so the format's default holds ({names}); which these are depends on "
            "the target's number of layers (name it with --target)."
        )
        return ()
    layers = target.default_feature_layers
    choices.append(
        f"feature layers: the file names none, the format's default was taken ({names}): the inputs of layers "
        f"{', '.join(map(str, layers))} of {target.num_layers}."
    )
    return layers


def _read_list(config: Config, facts: FormatFacts, target: ModelSpec | None, choices: list[str]) -> tuple[int, ...]:
    key = LIST_KEY if config.has(LIST_KEY) else CAPTURE_KEY
    values = config.values[key]
    whole = isinstance(values, list) and all(isinstance(v, int) and not isinstance(v, bool) for v in values)
    if not whole or not 1 <= len(values) <= 64:
        raise config.error(key, "a list of layer ids", f"{values!r:.80}")
    outputs = facts.names_outputs or key == CAPTURE_KEY
    layers = tuple(value + 1 if outputs else value for value in values)
    most = target.num_layers - 1 if target else 1 << 16
    for value, layer in zip(values, layers, strict=True):
        if not 0 <= layer <= most:
            least, last = (-1, most - 1) if outputs else (0, most)
            raise CheckpointError(
                f"config key `{key}`",
                expected=f"layer {'outputs' if outputs else 'inputs'} from {least} to {last}",
                found=str(value),
                where=config.where,
                action="The draft belongs to another target, or reads what is not supported.",
            )
    if outputs:
        choices.append(
            f"feature layers: {facts.title} names layer outputs ({', '.join(map(str, values))}); these are the inputs "
            f"of layers {', '.join(map(str, layers))}."
        )
    return layers
