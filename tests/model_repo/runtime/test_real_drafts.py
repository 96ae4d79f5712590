"""Draft models through ONNX Runtime: with every head and both precisions the text is plain decoding's.

The tiny drafts are random, so greedy guesses are hardly ever right; at a high temperature the shared noise decides, and
they often are: accepted paths, side branches and rewritten entries are all exercised.
"""

import numpy as np
import pytest
from draftsmith.builder.draft_options import DraftChoice
from draftsmith.builder.errors import CheckpointError, UsageError
from draftsmith.model_repo.contract.params import GenerationRequest, SamplingParams
from draftsmith.model_repo.runtime.draft_policy import FixedDraftSize
from draftsmith.model_repo.runtime.engine import DecodeEngine, EngineConfig
from draftsmith.model_repo.runtime.errors import EngineError
from draftsmith.model_repo.runtime.loading import load_admission, load_engine, read_manifest
from draftsmith.model_repo.runtime.model_drafter import ModelDrafter
from draftsmith.model_repo.runtime.sessions.onnxruntime import open_draft_session, open_session

from tests.model_repo.decoding import run, submit
from tests.model_repo.runtime.test_real_engines import compile_engine
from tests.tiny_draft_formats import write_tiny_draft
from tests.tiny_models import write_tiny_checkpoint

LIMITS = {"max_batch": 5, "max_length": 256, "max_query_len": 32, "max_kl": 10.0, "min_top1": 0.0}


@pytest.fixture(scope="module")
def drafting_engine(tmp_path_factory):
    """``drafting_engine("int8", "speculative")``: an engine folder with that head, built once."""
    folders = {}
    root = tmp_path_factory.mktemp("drafts")
    target = write_tiny_checkpoint(root / "target", "llama")
    draft = write_tiny_draft(root / "draft", "specvocab")
    np.save(root / "subset.npy", np.arange(3, 303, 3, dtype=np.int32))

    def build(precision, head):
        if (precision, head) not in folders:
            options = {
                "full": {},
                "subset": {"vocabulary": root / "subset.npy"},
                "speculative": {"num_candidates": 64},
                "grouped": {"num_candidates": 64},
            }
            choice = DraftChoice(source=str(target))
            if head != "model":
                choice = DraftChoice(source=str(draft), head=head, **options[head])
            output = root / f"{precision}-{head}"
            folders[precision, head] = compile_engine(target, output, precision, draft=choice, **LIMITS)
        return folders[precision, head]

    build.root, build.target, build.draft = root, target, draft
    return build


def open_engine(folder, size, num_slots=5):
    """The draft model alone drafts, and every tree is scored whole."""
    manifest = read_manifest(folder)
    session = open_session(folder, manifest, num_threads=1, num_slots=num_slots)
    policy = FixedDraftSize(size)
    drafter = ModelDrafter(open_draft_session(folder, manifest, num_threads=1, num_slots=num_slots), policy)
    config = EngineConfig(prefill_chunk_len=16)
    return DecodeEngine(session, load_admission(folder, manifest), config, drafter=drafter, policy=policy)


def request(text, **sampling):
    return GenerationRequest(text=text, sampling=SamplingParams(end_ids=(), **sampling))


REQUESTS = [
    request("the cat and the dog and the cat", max_tokens=50, temperature=3.0, seed=1, draft_width=3, draft_depth=4),
    request("in the end", max_tokens=7, draft_width=2, draft_depth=3),
    request("a b a b a b a b", max_tokens=40, temperature=3.0, seed=5, draft_width=1, draft_depth=5),
    request("one of the other things " * 4, max_tokens=40, speculate=False),
    request("x", max_tokens=50, repetition_penalty=1.1, temperature=2.0, seed=8, draft_width=4, draft_depth=3),
]


@pytest.mark.parametrize("head", ["full", "subset", "speculative", "grouped", "model"])
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_text_with_a_draft_model_is_plain_text(drafting_engine, precision, head):
    folder = drafting_engine(precision, head)
    plain = [run(engine, submit(engine, r)).facts() for engine in [open_engine(folder, 0)] for r in REQUESTS]
    engine = open_engine(folder, 15)
    alone = [run(engine, submit(engine, r)).facts() for r in REQUESTS]
    together = run(engine, *[submit(engine, r) for r in REQUESTS])
    assert alone == plain
    assert [a.facts() for a in together] == plain
    stats = engine.stats()
    assert stats.num_accepted_draft_tokens > 10
    assert head == "model" or stats.num_accepted_draft_tokens < stats.num_draft_tokens  # itself is always right


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_target_that_drafts_for_itself_is_right_every_time(drafting_engine, precision):
    engine = open_engine(drafting_engine(precision, "model"), 15)
    answer = run(engine, submit(engine, request("in the end of the", max_tokens=40, draft_width=1, draft_depth=4)))
    assert answer.last.acceptance_rate == 1.0
    assert answer.last.num_target_steps <= 9


def test_a_loaded_package_drafts_with_both_and_says_what_it_measured(drafting_engine):
    folder = drafting_engine("int8", "speculative")
    draft = read_manifest(folder).draft
    assert (draft.kind, draft.head, draft.num_candidates, draft.is_native) == ("eagle3", "speculative", 64, True)
    assert {"accepted_length", "speed_up", "recall"} <= set(draft.quality)
    engine = load_engine(folder, num_threads=1, num_slots=2, config=EngineConfig(num_candidates=8))
    answers = [run(engine, submit(engine, r)).facts() for r in REQUESTS[:2]]
    plain = open_engine(folder, 0)
    assert answers == [run(plain, submit(plain, r)).facts() for r in REQUESTS[:2]]
    engine.close()
    with pytest.raises(EngineError, match="num_candidates"):
        load_engine(drafting_engine("fp16", "full"), num_threads=1, config=EngineConfig(num_candidates=8))


def test_a_draft_of_another_target_is_refused_with_both_values(drafting_engine, tmp_path):
    other = write_tiny_checkpoint(tmp_path / "other", "llama", hidden_size=32, head_dim=8)
    choice = DraftChoice(source=str(drafting_engine.draft))
    with pytest.raises(CheckpointError, match=r"(64.*32|32.*64)"):
        compile_engine(other, tmp_path / "out", "fp16", draft=choice, **LIMITS)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"head": "subset"}, "--draft-vocabulary: expected a file of choose-vocabulary"),
        ({"source": "none", "head": "full"}, "--draft: expected a draft beside the other --draft options"),
        ({"head": "wide"}, "--draft-head: expected full or subset or speculative or grouped"),
        ({"num_candidates": 9000}, "--draft-candidates: expected a number from 1 to 8,192"),
        ({"source": "auto", "head": "full"}, "--draft: expected a draft's folder beside the other --draft options"),
    ],
)
def test_options_that_do_not_fit_are_refused(drafting_engine, tmp_path, options, words):
    with pytest.raises(UsageError, match=words):
        choice = DraftChoice(**{"source": str(drafting_engine.draft), **options})
        compile_engine(drafting_engine.target, tmp_path / "out", "fp16", draft=choice, **LIMITS)
