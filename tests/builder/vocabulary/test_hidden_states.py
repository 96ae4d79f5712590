"""States of a tiny target and draft, and the whole fit and its commands on them."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.cli.choose_vocabulary import choose_vocabulary
from draftsmith.builder.cli.fit_vocabulary import fit_vocabulary
from draftsmith.builder.draft.checkpoint import DraftCheckpoint
from draftsmith.builder.errors import UsageError
from draftsmith.builder.progress import Silent
from draftsmith.builder.quantize.forward import Forward, multiply
from draftsmith.builder.quantize.text import encode_documents, read_shipped
from draftsmith.builder.vocabulary.files import load_ranking, load_subset
from draftsmith.builder.vocabulary.fit import FitOptions, fit_draft_ranking, fit_seen, measure_ranking, see_text
from draftsmith.builder.vocabulary.hidden_states import _join, run_target, target_head_states
from draftsmith.builder.vocabulary.passages import Passage, encode_passages, name_tasks, read_documents
from typer.testing import CliRunner

from tests.builder.draft.test_reference import SPEC, make_weights
from tests.tiny_models import write_tiny_checkpoint

DOCUMENTS = [{"task": "a", "text": "hello world, this is it. " * 6}, {"task": "b", "text": "and that was all. " * 6}]


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_checkpoint(folder, "llama")
    return folder


def test_states_and_features_are_the_decoders(tiny_path):
    passages = [Passage("a", np.array([3, 9, 4, 7])), Passage("b", np.array([5, 6, 8]))]
    with open_checkpoint(tiny_path) as target:
        states = run_target(target, passages, (0, 2), Silent())
        forward = Forward(target.spec, target.weights.read, [3])
        x = forward.embed(passages[1].token_ids)
        inputs = []
        for index in range(target.spec.num_layers):
            inputs.append(x)
            x = forward.layer(index, x, multiply)
        np.testing.assert_allclose(states[1].hidden, forward.final_norm(x), atol=1e-5)
        np.testing.assert_allclose(states[1].features, np.concatenate([inputs[0], inputs[2]], axis=1), atol=1e-5)
    joined = target_head_states(states)
    assert joined.tasks == ("a", "b")
    np.testing.assert_array_equal(joined.task_index, [0, 0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(joined.parent_index, [-1, 0, 1, 2, -1, 4, 5])


def test_a_chains_parents_are_the_step_before_of_the_same_start():
    joined = _join([("a", [np.zeros((3, 2)), np.zeros((2, 2)), np.zeros((1, 2))])])
    np.testing.assert_array_equal(joined.parent_index, [-1, 0, 1, 0, 1, 3])


def make_draft(target):
    """A tiny draft that borrows embedding and head, its weights from the draft's own tests."""
    spec = replace(
        SPEC,
        hidden_size=64,
        target_hidden_size=64,
        vocab_size=target.spec.vocab_size,
        head_vocab_size=target.spec.vocab_size,
        own_embedding=False,
        own_head=False,
    )
    weights = SimpleNamespace(read=make_weights(spec).__getitem__, close=lambda: None)
    return DraftCheckpoint(path=Path("tiny"), format="speculators", spec=spec, weights=weights)


def test_a_ranking_is_fitted_to_a_drafts_states(tiny_path):
    """Three steps over each passage but its last position, read by the target's head."""
    with open_checkpoint(tiny_path) as target:
        draft = make_draft(target)
        seen = see_text(target, draft, DOCUMENTS[:1], DOCUMENTS[1:], Silent())
        size = len(encode_passages(DOCUMENTS[:1], target.tokenizer, 1000)[0].token_ids) - 1
        assert len(seen.fitted) == size + size - 1 + size - 2
        assert seen.head.shape == (target.spec.vocab_size, 64)
        fitted = fit_seen(seen, FitOptions(rank=64, num_candidates=16, grouped=False), Silent())
    assert fitted.recall["recall"] > 0.98
    assert fitted.recall["positions"] == len(seen.held_out)


def test_tasks_have_names():
    documents = [{"messages": []}, {"text": ""}, {"text": "", "category": "math"}, {"messages": []}]
    assert name_tasks(documents) == ["chat 1", "text 1", "math", "chat 2"]


def test_lines_of_spec_bench_and_plain_text_are_read(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps({"category": "qa", "turns": ["Who?", "Why?"]}) + "\n\n" + '{"text": "x"}\n', "utf-8")
    assert read_documents(path) == [{"messages": [{"role": "user", "content": "Who?"}], "task": "qa"}, {"text": "x"}]
    plain = tmp_path / "plain.txt"
    plain.write_text("one\n\ntwo", "utf-8")
    assert read_documents(plain) == [{"task": "text", "text": "one\n\ntwo"}]


@pytest.mark.parametrize("line", ["[1]", "nonsense", '{"question": "x"}', '{"messages": [1]}'])
def test_a_wrong_line_is_named(tmp_path, line):
    path = tmp_path / "questions.jsonl"
    path.write_text('{"text": "x"}\n' + line, "utf-8")
    with pytest.raises(UsageError, match="line 2"):
        read_documents(path)


def test_every_task_gets_its_share(tiny_path):
    with open_checkpoint(tiny_path) as target:
        passages = encode_passages(DOCUMENTS, target.tokenizer, 40)
    assert {passage.task for passage in passages} == {"a", "b"}


@pytest.mark.parametrize("grouped", [False, True])
def test_full_rank_holds_the_best_token(tiny_path, grouped):
    with open_checkpoint(tiny_path) as target:
        seen = see_text(target, None, DOCUMENTS, DOCUMENTS, Silent())
        options = FitOptions(rank=64, num_candidates=32, grouped=grouped, with_prior=True, is_adaptive=True)
        fitted = fit_seen(seen, options, Silent())
    assert fitted.recall["recall"] > (0.7 if grouped else 0.98)  # two groups of 16 of a flat, untrained model
    assert set(fitted.recall["tasks"]) == {"a", "b"}
    assert fitted.adaptive is not None
    assert (fitted.ranking.groups is not None) == grouped


def test_the_same_figures_are_measured_again(tiny_path):
    with open_checkpoint(tiny_path) as target:
        fitted = fit_draft_ranking(
            target, None, rank=8, num_candidates=32, grouped=False, text="some words " * 50, progress=Silent()
        )
        again, states = measure_ranking(target, None, fitted.ranking, Silent())
        gate = encode_documents(read_shipped("held_out"), target.tokenizer, 300)
    assert fitted.held_out is not None
    for found, kept in zip(states.find(gate), fitted.held_out.find(gate), strict=True):
        np.testing.assert_allclose(found, kept, atol=1e-4)
    assert again["positions"] == fitted.recall["positions"]
    assert again["recall"] == pytest.approx(fitted.recall["recall"], abs=2e-3)  # rows run in other groups round apart
    assert again["mass"] == pytest.approx(fitted.recall["mass"], abs=1e-5)


@pytest.mark.parametrize(("rank", "candidates", "option"), [(65, 4, "--rank"), (0, 4, "--rank"), (4, 0, "--cand")])
def test_impossible_sizes_are_refused(tiny_path, rank, candidates, option):
    with open_checkpoint(tiny_path) as target:
        seen = see_text(target, None, DOCUMENTS, DOCUMENTS, Silent())
    with pytest.raises(UsageError, match=option):
        fit_seen(seen, FitOptions(rank=rank, num_candidates=candidates, grouped=False), Silent())


def run_command(function, *arguments):
    app = typer.Typer()
    app.command()(function)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_fit_vocabulary_writes_a_ranking_and_prints_its_recall(tiny_path, tmp_path):
    output = tmp_path / "ranking.safetensors"
    result = run_command(fit_vocabulary, tiny_path, "-o", output, "--candidates", 32, "--json", "--quiet")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.output)
    ranking, facts = load_ranking(output)
    assert (ranking.num_candidates, ranking.rank, facts.draft) == (32, 4, "")
    assert facts.notes["recall"] == printed["recall"]
    assert 0 < printed["recall"]["recall"] <= 1


def test_fit_vocabulary_prints_a_table(tiny_path, tmp_path):
    output = tmp_path / "ranking.safetensors"
    result = run_command(fit_vocabulary, tiny_path, "-o", output, "--candidates", 32, "--adaptive", "--quiet")
    assert result.exit_code == 0, result.output
    assert "adaptive k" in result.output
    assert "top-1 held" in result.output


@pytest.mark.parametrize("method", ["frequency", "target"])
def test_choose_vocabulary_writes_a_subset_with_the_end_token(tiny_path, tmp_path, method):
    output = tmp_path / "subset.safetensors"
    result = run_command(choose_vocabulary, tiny_path, "-o", output, "--method", method, "--size", 64, "--quiet")
    assert result.exit_code == 0, result.output
    with open_checkpoint(tiny_path) as target:
        ids, facts = load_subset(output, vocab_size=target.spec.vocab_size)
        assert set(target.generation.end_ids) <= set(ids.tolist())
    assert len(ids) == 64
    assert facts is not None
    assert facts.notes["method"] == method


@pytest.mark.parametrize(
    ("option", "value", "message"), [("--method", "random", "--method"), ("--size", "1000000", "--size")]
)
def test_wrong_options_are_named(tiny_path, tmp_path, option, value, message):
    result = run_command(choose_vocabulary, tiny_path, "-o", tmp_path / "x.npy", option, value)
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)


def test_a_missing_folder_is_named_before_any_work(tiny_path, tmp_path):
    result = run_command(fit_vocabulary, tiny_path, "-o", tmp_path / "no" / "x.safetensors")
    assert isinstance(result.exception, UsageError)
    assert "--output: expected a folder that exists" in str(result.exception)
