"""The same weights for every peer: a Hugging Face folder in FP32, a Q8_0 GGUF, onnxruntime-genai's int8 model.

What is there already is kept. Each file is made from the de-quantised checkpoint, so all programs run one model.
"""

import json
import subprocess
import sys
from pathlib import Path

import gguf
from draftsmith.builder.checkpoint.source import Checkpoint, open_checkpoint
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file


def make_hf_folder(checkpoint: Path, folder: Path) -> Path:
    """config.json, FP32 safetensors and the tokenizer of a Llama-like checkpoint."""
    if (folder / "tokenizer_config.json").is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with open_checkpoint(checkpoint) as opened:
        names = opened.weights.tensors
        save_file({name: opened.weights.read(name) for name in names}, folder / "model.safetensors", {"format": "pt"})
        (folder / "config.json").write_text(json.dumps(llama_config(opened), indent=2))
        (folder / "tokenizer.json").write_text(opened.tokenizer.tokenizer_json)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def llama_config(checkpoint: Checkpoint) -> dict[str, object]:
    """transformers' config of a Llama without rope scaling, from our spec."""
    spec = checkpoint.spec
    if spec.architecture != "llama" or spec.rope.kind != "default":
        sys.exit(f"peer_models: expected a plain Llama, found {spec.architecture} with {spec.rope.kind} rope")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.max_positions,
        "rms_norm_eps": spec.norm_eps,
        "rope_theta": spec.rope.theta,
        "hidden_act": "silu",
        "tie_word_embeddings": spec.tied_head,
        "bos_token_id": checkpoint.tokenizer.bos_id,
        "eos_token_id": list(checkpoint.generation.end_ids)[:1] or None,
        "torch_dtype": "float32",
    }


def make_q8_gguf(checkpoint: Path, target: Path) -> Path:
    """A GGUF with every matrix as Q8_0 and the metadata of ``checkpoint`` (a GGUF)."""
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(checkpoint)
    partial = target.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in {"general.architecture", "general.file_type"}:
            continue
        kind = field.types[0]
        writer.add_key_value(name, field.contents(), kind, field.types[-1] if kind.name == "ARRAY" else None)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    q8 = gguf.GGMLQuantizationType.Q8_0
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        if values.ndim == 1:
            writer.add_tensor(tensor.name, values.astype("float32"))
        else:
            writer.add_tensor(tensor.name, quantize(values, q8), raw_dtype=q8)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(target)
    return target


def make_genai_folder(hf_folder: Path, folder: Path, python: Path) -> Path:
    """onnxruntime-genai's int8 model (``MatMulNBits``, int8 activations), made by its own builder."""
    if (folder / "genai_config.json").is_file():
        return folder
    command = [python, "-m", "onnxruntime_genai.models.builder", "-i", hf_folder, "-o", folder]
    command += ["-p", "int8", "-e", "cpu", "-c", folder / "cache", "--extra_options", "accuracy_level=4"]
    with folder.with_name(f"{folder.name}.log").open("w") as log:
        subprocess.run([str(word) for word in command], check=True, stdout=log, stderr=log)
    return folder
