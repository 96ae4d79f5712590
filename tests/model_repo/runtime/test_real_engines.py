"""Through ONNX Runtime: speculative text is plain text in every family and precision, alone and in ragged batches."""

import json
from pathlib import Path

import numpy as np
import pytest
from draftsmith.builder.pipeline import compile_only
from draftsmith.builder.plan import BuildPlan
from draftsmith.builder.progress import Silent
from draftsmith.model_repo.contract.params import GenerationRequest, SamplingParams
from draftsmith.model_repo.runtime.draft_policy import FixedDraftSize
from draftsmith.model_repo.runtime.engine import DecodeEngine, EngineConfig
from draftsmith.model_repo.runtime.loading import load_admission, load_engine, read_manifest
from draftsmith.model_repo.runtime.sessions.onnxruntime import open_session

from tests.model_repo.decoding import run, submit
from tests.tiny_models import write_tiny_checkpoint

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma3")


def compile_engine(checkpoint, output, precision, **options):
    plan = BuildPlan(checkpoint=checkpoint, output=output, name="engine", precisions=(precision,), **options)
    (built,) = compile_only(plan, Silent())
    return next(path.parent for path in Path(built.folder).rglob("engine.json"))


@pytest.fixture(scope="module")
def tiny_engine(tmp_path_factory):
    """``tiny_engine("qwen3", "int8")``: an engine folder, built once."""
    folders = {}

    def build(architecture, precision):
        if (architecture, precision) not in folders:
            root = tmp_path_factory.mktemp(f"{architecture}-{precision}")
            # Random weights have no meaning to lose: the quality gate is not what is tested here.
            folders[architecture, precision] = compile_engine(
                write_tiny_checkpoint(root / "checkpoint", architecture),
                root / "out",
                precision,
                max_batch=5,
                max_length=256,
                max_query_len=32,
                max_kl=10.0,
                min_top1=0.0,
            )
        return folders[architecture, precision]

    return build


def open_engine(folder, draft_len, num_slots=5, **config):
    manifest = read_manifest(folder)
    session = open_session(folder, manifest, num_threads=1, num_slots=num_slots)
    return DecodeEngine(
        session, load_admission(folder, manifest), EngineConfig(**config), policy=FixedDraftSize(draft_len)
    )


def request(text, **sampling):
    return GenerationRequest(text=text, sampling=SamplingParams(end_ids=(), **sampling))


REQUESTS = [
    request("the cat and the dog and the cat", max_tokens=60, return_log_probs=True, num_top_log_probs=3),
    request("in the end", max_tokens=7),
    request("a b a b a b a b", max_tokens=50, temperature=0.7, seed=5),
    request("one of the other things " * 4, max_tokens=50, speculate=False),
    request("x", max_tokens=60, repetition_penalty=1.1, temperature=0.5, seed=8, top_p=0.9),
]


@pytest.mark.parametrize("precision", ["fp16", "int8"])
@pytest.mark.parametrize("architecture", FAMILIES)
def test_speculative_text_is_plain_text(tiny_engine, architecture, precision):
    folder = tiny_engine(architecture, precision)
    plain_engine = open_engine(folder, 0, prefill_chunk_len=16)
    plain = [run(plain_engine, submit(plain_engine, r)).facts() for r in REQUESTS]
    engine = open_engine(folder, 6, prefill_chunk_len=16)
    alone = [run(engine, submit(engine, r)).facts() for r in REQUESTS]
    together = run(engine, *[submit(engine, r) for r in REQUESTS])
    assert alone == plain
    assert [a.facts() for a in together] == plain
    stats = engine.stats()
    assert 0 < stats.num_accepted_draft_tokens < stats.num_draft_tokens


def test_what_a_slot_held_before_does_not_reach_its_next_owner(tiny_engine):
    folder = tiny_engine("qwen3", "fp16")
    clean = open_engine(folder, 3)
    expected = [a.facts() for a in run(clean, *[submit(clean, r) for r in REQUESTS])]
    spoilt = open_engine(folder, 3)
    for array in spoilt._session._cache.arrays.values():
        array[:] = np.nan
    assert [a.facts() for a in run(spoilt, *[submit(spoilt, r) for r in REQUESTS])] == expected


def test_a_loaded_package_answers_in_its_own_thread(tiny_engine):
    engine = load_engine(tiny_engine("llama", "fp16"), num_threads=1, num_slots=2)
    over = []
    engine.start()
    engine.submit(REQUESTS[1], lambda update: over.append(update) if update.is_final else None)
    engine._thread.join(0)
    while not over:
        assert engine.is_ready
        engine._thread.join(0.01)
    engine.close()
    assert over[0].finish_reason == "length" and over[0].error is None


PROMPTS = [
    "Write a list of the numbers from 1 to 12, one a line.",
    "Repeat: the quick brown fox jumps over the lazy dog. The quick brown fox",
    "What is the capital of France?",
]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_smollm2_says_the_same_with_and_without_drafts(smollm2_gguf, tmp_path, precision):
    folder = compile_engine(smollm2_gguf, tmp_path, precision, max_batch=3, max_length=256)
    engine = open_engine(folder, 5, num_slots=3)
    answers = {}
    for speculate in (False, True):
        for temperature in (0.0, 1.0):
            requests = [
                GenerationRequest(
                    messages=({"role": "user", "content": prompt},),
                    sampling=SamplingParams(max_tokens=30, temperature=temperature, seed=3, speculate=speculate),
                )
                for prompt in PROMPTS
            ]
            batch = run(engine, *[submit(engine, r) for r in requests])
            answers[speculate, temperature] = [a.facts() for a in batch]
    assert answers[True, 0.0] == answers[False, 0.0]
    assert answers[True, 1.0] == answers[False, 1.0]
    assert answers[True, 0.0][0][0].startswith("1, 2, 3, 4, 5")
    stats = engine.stats()
    assert 0 < stats.num_accepted_draft_tokens < stats.num_draft_tokens


def test_smollm2_text_streams_as_its_tokenizer_decodes_it(smollm2_gguf):
    from draftsmith.builder.checkpoint.source import open_checkpoint
    from tokenizers import Tokenizer

    from tests.model_repo.runtime.test_detokenizer import TEXTS, stream

    with open_checkpoint(smollm2_gguf) as checkpoint:
        tokenizer = Tokenizer.from_str(checkpoint.tokenizer.tokenizer_json)
        assert json.loads(checkpoint.tokenizer.tokenizer_json)["decoder"]["type"] == "ByteLevel"
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids) == text


def test_smollm2_messages_render_as_transformers_renders_them(smollm2_gguf):
    pytest.importorskip("transformers", reason="needs transformers as the oracle")
    from draftsmith.builder.checkpoint.source import open_checkpoint
    from draftsmith.model_repo.runtime.chat_template import ChatTemplate
    from transformers.utils.chat_template_utils import render_jinja_template

    with open_checkpoint(smollm2_gguf) as checkpoint:
        template, special = checkpoint.tokenizer.chat_template, dict(checkpoint.tokenizer.special_tokens)
    for messages in (
        [{"role": "user", "content": "Hi <there> \U0001f600"}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a\nb"}],
        [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}],
    ):
        expected, _ = render_jinja_template(
            conversations=[messages], chat_template=template, add_generation_prompt=True, **special
        )
        assert [ChatTemplate(template, special).render(messages)] == expected
