"""The NumPy decoder against transformers: logits, and gradients against torch's."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from draftsmith.builder.checkpoint.source import Checkpoint, open_checkpoint
from draftsmith.builder.quantize.decoder import KINDS, Decoder, Layer
from draftsmith.builder.quantize.decoder_math import rms_norm_gradient
from draftsmith.builder.quantize.forward import Forward, logits_in_chunks, multiply

torch = pytest.importorskip("torch", reason="the oracle extra is not installed")
transformers = pytest.importorskip("transformers", reason="the oracle extra is not installed")

FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "gemma3"]
LENGTHS = (11, 1, 19)


def _model(folder: Path):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    ).eval()


def _head(checkpoint: Checkpoint):
    return checkpoint.weights.read("model.embed_tokens.weight" if checkpoint.spec.tied_head else "lm_head.weight").T


def _token_ids(checkpoint: Checkpoint):
    ids = np.random.default_rng(3).integers(3, checkpoint.spec.vocab_size, sum(LENGTHS))
    return ids, np.split(ids, np.cumsum(LENGTHS)[:-1])


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers(family: str, tiny_checkpoint: Callable[..., Path]) -> None:
    folder = tiny_checkpoint(family)
    model = _model(folder)
    with open_checkpoint(folder) as checkpoint:
        ids, sequences = _token_ids(checkpoint)
        forward = Forward(checkpoint.spec, checkpoint.weights.read, LENGTHS)
        x = forward.embed(ids)
        for index in range(checkpoint.spec.num_layers):
            x = forward.layer(index, x, multiply)
        logits = np.concatenate(list(logits_in_chunks(forward.final_norm(x), _head(checkpoint), tokens=7)))
    with torch.no_grad():
        expected = np.concatenate([model(torch.from_numpy(s)[None]).logits[0].numpy() for s in sequences])
    np.testing.assert_allclose(logits, expected, atol=2e-4 * np.abs(expected).max())


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_of_every_linear_are_those_of_torch(family: str, tiny_checkpoint: Callable[..., Path]) -> None:
    folder = tiny_checkpoint(family)
    model = _model(folder)
    with open_checkpoint(folder) as checkpoint:
        ids, sequences = _token_ids(checkpoint)
        weighting = np.random.default_rng(4).standard_normal((len(ids), checkpoint.spec.hidden_size)).astype(np.float32)
        ours = _our_gradients(checkpoint, ids, weighting)
    theirs = _torch_gradients(model, sequences, weighting)
    for name, (grad_x, grad_y) in theirs.items():
        found = ours[name]
        np.testing.assert_allclose(found.x, grad_x, atol=1e-3 * np.abs(grad_x).max(), err_msg=name)
        np.testing.assert_allclose(found.y, grad_y, atol=1e-3 * np.abs(grad_y).max(), err_msg=name)


def _our_gradients(checkpoint: Checkpoint, ids, weighting):
    spec, read = checkpoint.spec, checkpoint.weights.read
    decoder = Decoder(spec, LENGTHS)
    layers = [Layer(spec, read, index) for index in range(spec.num_layers)]
    hidden = [Forward(spec, read, LENGTHS).embed(ids)]
    for layer in layers:
        hidden.append(decoder.forward(layer, hidden[-1])[0])
    norm = read("model.norm.weight") + np.float32(spec.norm_offset)
    grad = rms_norm_gradient(hidden[-1], norm, spec.norm_eps, weighting)
    found = {}
    for layer, x in zip(reversed(layers), reversed(hidden[:-1]), strict=True):
        grad, grads = decoder.backward(layer, x, decoder.forward(layer, x)[1], grad)
        found |= {f"layers.{layer.index}.{kind}": grads[kind] for kind in KINDS}
    return found


def _torch_gradients(model, sequences, weighting):
    """Gradients of sum(weighting x final norm) at inputs and outputs of the linears, joined as ours are."""
    values: dict[str, list] = {}

    def keep(name: str):
        def hook(_module, inputs, output) -> None:
            inputs[0].retain_grad()
            output.retain_grad()
            values.setdefault(name, []).append((inputs[0], output))

        return hook

    parts = {
        "qkv": ("self_attn", "qkv"),
        "o": ("self_attn", "o"),
        "gate_up": ("mlp", ("gate", "up")),
        "down": ("mlp", ("down",)),
    }
    for index, layer in enumerate(model.model.layers):
        for kind, (block, names) in parts.items():
            for part in names:
                module = getattr(getattr(layer, block), f"{part}_proj")
                module.register_forward_hook(keep(f"layers.{index}.{kind}"))
    spans = np.split(weighting, np.cumsum(LENGTHS)[:-1])
    result: dict[str, list] = {}
    for sequence, weights in zip(sequences, spans, strict=True):
        values.clear()
        hidden = model.model(torch.from_numpy(sequence)[None]).last_hidden_state[0]
        (hidden * torch.from_numpy(weights)).sum().backward()
        for name, pairs in values.items():
            grad_y = np.concatenate([y.grad[0].numpy() for _, y in pairs], axis=-1)
            result.setdefault(name, []).append((pairs[0][0].grad[0].numpy(), grad_y))
    return {name: tuple(np.concatenate(parts) for parts in zip(*pairs, strict=True)) for name, pairs in result.items()}
