"""One program of benchmarks/peers.py in a process of its own: loads a model, then decodes greedily on demand.

Runs in the peer's own virtual environment, so it imports nothing of ours unless the peer is draftsmith. A line of JSON
in, ``{"prompt": ids, "num_tokens": n}``, is answered by a line of JSON, ``{"seconds": s, "token_ids": ids}``: the time
from the first new token to the last, prefill left out.

    python worker.py KIND MODEL THREADS
"""

# ruff: noqa: PLC0415 - a peer's packages are in its own environment alone
import json
import sys
import time
from pathlib import Path


def load_draftsmith(model, threads):
    """MODEL: the folder of engine.json. One slot, no speculation."""
    from importlib import metadata

    from inprocess import LocalEngine

    engine = LocalEngine(Path(model), threads)

    def decode(prompt, num_tokens):
        answer = engine.generate(input_ids=tuple(prompt), max_tokens=num_tokens, end_ids=(), speculate=False)
        return answer.decode_seconds, answer.token_ids

    return decode, metadata.version("draftsmith")


def load_transformers(model, threads):
    """MODEL: a Hugging Face folder; FP32."""
    import warnings

    import torch
    import transformers

    torch.set_num_threads(threads)
    network = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()

    @torch.inference_mode()
    def decode(prompt, num_tokens):
        warnings.simplefilter("ignore")
        output = network(torch.tensor([prompt]), use_cache=True)
        tokens = [int(output.logits[0, -1].argmax())]
        start = time.perf_counter()
        while len(tokens) < num_tokens:
            output = network(torch.tensor([tokens[-1:]]), past_key_values=output.past_key_values, use_cache=True)
            tokens.append(int(output.logits[0, -1].argmax()))
        return time.perf_counter() - start, tokens

    return decode, transformers.__version__


def load_genai(model, threads):
    """MODEL: a folder written by onnxruntime-genai's model builder."""
    import onnxruntime_genai as og

    path = Path(model) / "genai_config.json"
    config = json.loads(path.read_text())
    config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = threads
    path.write_text(json.dumps(config, indent=2))
    network = og.Model(model)

    def decode(prompt, num_tokens):
        params = og.GeneratorParams(network)
        total = len(prompt) + num_tokens
        params.set_search_options(do_sample=False, max_length=total, min_length=total)
        generator = og.Generator(network, params)
        generator.append_tokens(prompt)
        generator.generate_next_token()
        start = time.perf_counter()
        for _ in range(num_tokens - 1):
            generator.generate_next_token()
        seconds = time.perf_counter() - start
        return seconds, [int(token) for token in generator.get_sequence(0)[len(prompt) :]]

    return decode, og.__version__


def load_llama(model, threads):
    """MODEL: a GGUF file. The C interface is called directly, so that Python costs next to nothing."""
    import llama_cpp
    import numpy as np

    llm = llama_cpp.Llama(model, n_ctx=2048, n_threads=threads, n_threads_batch=threads, verbose=False)
    vocab_size = llm.n_vocab()

    def step(tokens):
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        if llama_cpp.llama_decode(llm.ctx, llama_cpp.llama_batch_get_one(array, len(tokens))):
            raise RuntimeError("llama_decode failed")
        return int(np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(llm.ctx, -1), (vocab_size,)).argmax())

    def decode(prompt, num_tokens):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(llm.ctx), True)
        tokens = [step(prompt)]
        start = time.perf_counter()
        while len(tokens) < num_tokens:
            tokens.append(step(tokens[-1:]))
        return time.perf_counter() - start, tokens

    return decode, llama_cpp.__version__


LOADERS = {
    "draftsmith": load_draftsmith,
    "transformers": load_transformers,
    "genai": load_genai,
    "llama": load_llama,
}


def main(kind, model, threads):
    """Load, say so, answer until standard input ends."""
    decode, version = LOADERS[kind](model, int(threads))
    print(json.dumps({"version": version}), flush=True)
    for line in sys.stdin:
        seconds, tokens = decode(**json.loads(line))
        print(json.dumps({"seconds": seconds, "token_ids": tokens}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
