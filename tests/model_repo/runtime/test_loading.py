"""A package is checked before it is served; every error names the file."""

import hashlib
import json
import sys
import types

import pytest
from draftsmith.model_repo.contract.errors import ManifestError
from draftsmith.model_repo.contract.manifest import FORMAT_VERSION
from draftsmith.model_repo.runtime.errors import EngineError
from draftsmith.model_repo.runtime.loading import SESSION_MODULES, _load_template, load_engine, read_manifest

from tests.model_repo.decoding import make_request, run, submit
from tests.model_repo.toy_session import ToySession
from tests.tiny_tokenizer import CHAT_TEMPLATE, tokenizer_values


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An engine folder whose backend is the toy session."""
    name = "draftsmith.model_repo.runtime.sessions.toy"
    module = types.ModuleType(name)
    module.open_session = lambda folder, manifest, *, num_threads, num_slots: ToySession(
        num_slots=num_slots, capacity=manifest.max_length
    )
    module.find_machine_facts = lambda: {"toy": "1.0"}
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(SESSION_MODULES, "toy", "toy")
    files = {
        "target.onnx": "not read by the toy",
        "tokenizer.json": json.dumps(tokenizer_values()),
        "chat_template.jinja": CHAT_TEMPLATE,
    }
    for file, text in files.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    manifest = {
        "format_version": FORMAT_VERSION,
        "draftsmith_version": "0.1.0",
        "model_name": "toy",
        "backend": "toy",
        "backend_version": "1",
        "precision": "fp32",
        "spec": {},
        "vocab_size": 300,
        "max_batch": 4,
        "max_length": 100,
        "max_query_len": 64,
        "min_query_len": 1,
        "feature_layers": [],
        "kv_cache": {"num_layers": 1, "num_kv_heads": 1, "head_dim": 1, "capacity": 100, "dtype": "float32"},
        "draft": None,
        "bos_id": 1,
        "end_ids": [2],
        "special_tokens": {"bos_token": "<s>", "eos_token": "</s>"},
        "graph_file": "target.onnx",
        "tokenizer_file": "tokenizer.json",
        "chat_template_file": "chat_template.jinja",
        "files": [
            {"name": file, "num_bytes": len(text.encode()), "sha256": hashlib.sha256(text.encode()).hexdigest()}
            for file, text in files.items()
        ],
        "requires": {},
        "build": {},
        "quality": {},
    }
    write(tmp_path, manifest)
    return tmp_path


def write(folder, manifest):
    (folder / "engine.json").write_text(json.dumps(manifest), encoding="utf-8")


def change(folder, **values):
    manifest = json.loads((folder / "engine.json").read_text(encoding="utf-8"))
    write(folder, {**manifest, **values})


def replace(folder, name, text):
    """Another content, with a manifest that agrees."""
    (folder / name).write_text(text, encoding="utf-8")
    manifest = json.loads((folder / "engine.json").read_text(encoding="utf-8"))
    for entry in manifest["files"]:
        if entry["name"] == name:
            entry.update(num_bytes=len(text.encode()), sha256=hashlib.sha256(text.encode()).hexdigest())
    write(folder, manifest)


def test_a_whole_package_is_served(package):
    engine = load_engine(package, num_threads=1, num_slots=2)
    answer = run(engine, submit(engine, make_request("the cat", max_tokens=20)))
    assert answer.is_over and answer.last.error is None
    assert engine.stats().num_slots == 2


def test_the_slots_are_the_manifests_where_none_are_asked_for(package):
    assert load_engine(package).stats().num_slots == 4


@pytest.mark.parametrize("name", ["target.onnx", "tokenizer.json", "chat_template.jinja", "engine.json"])
def test_a_missing_file_is_named(package, name):
    (package / name).unlink()
    with pytest.raises(ManifestError, match=name):
        load_engine(package)


def test_a_file_of_another_size_is_named(package):
    (package / "target.onnx").write_text("shorter")
    with pytest.raises(ManifestError, match=r"target.onnx: expected 19 bytes, found 7"):
        load_engine(package)


def test_a_file_with_another_content_is_named(package):
    (package / "target.onnx").write_text("NOT read by the toy")
    with pytest.raises(ManifestError, match=r"target.onnx: expected SHA-256"):
        load_engine(package)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"backend": "abacus"}, "backend: expected onnxruntime"),
        ({"format_version": 99}, "format_version: expected 3, found 99"),
        ({"end_ids": [300]}, r"end_ids: expected ids of the vocabulary, found \[300\]"),
        ({"end_ids": "2"}, "end_ids: expected ids of the vocabulary"),
        ({"end_ids": [-1]}, "end_ids: expected ids of the vocabulary"),
        ({"bos_id": True}, "bos_id: expected ids of the vocabulary"),
        ({"special_tokens": ["<s>"]}, "special_tokens: expected strings by name"),
        ({"special_tokens": {"bos_token": 1}}, "special_tokens: expected strings by name"),
        ({"backend": ["onnxruntime"]}, "backend: expected a string"),
        ({"backend_version": None}, "backend_version: expected a string, found None"),
        ({"model_name": 5}, "model_name: expected a string, found 5"),
        ({"spec": []}, "spec: expected an object"),
        ({"requires": {"toy": 1}}, "requires.toy: expected a string, found 1"),
        ({"build": None}, "build: expected an object"),
        ({"quality": 1}, "quality: expected an object"),
        ({"feature_layers": {}}, "feature_layers: expected a list"),
        ({"surprise": 1}, "keys: expected known names only, found surprise"),
        ({"files": [{"name": "../x", "num_bytes": 1, "sha256": "0" * 64}]}, "a path inside the package"),
        ({"files": [{"name": "/etc/passwd", "num_bytes": 1, "sha256": "0" * 64}]}, "a path inside the package"),
    ],
)
def test_a_manifest_that_is_not_right_is_refused(package, values, text):
    change(package, **values)
    with pytest.raises(ManifestError, match=text):
        load_engine(package)


@pytest.mark.parametrize("text", ["{", "[]", "\x00"])
def test_an_engine_json_that_is_no_object_is_refused(package, text):
    (package / "engine.json").write_text(text)
    with pytest.raises(ManifestError, match=r"engine.json: expected"):
        load_engine(package)


def test_a_tokenizer_that_is_none_is_refused(package):
    replace(package, "tokenizer.json", "{}")
    with pytest.raises(ManifestError, match=r"tokenizer.json: expected a tokenizer.json"):
        load_engine(package)


def test_a_template_that_is_none_is_refused(package):
    replace(package, "chat_template.jinja", "{% for %}")
    with pytest.raises(ManifestError, match="a valid Jinja template"):
        load_engine(package)


def test_the_template_gets_the_special_tokens_of_the_checkpoint(package):
    # Not those of bos_id and end_ids: a model may end at another token than its eos_token.
    change(package, special_tokens={"bos_token": "[B]", "unk_token": "[U]"}, end_ids=[5])
    source = "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}|{{ messages[0]['content'] }}"
    replace(package, "chat_template.jinja", source)
    manifest = read_manifest(package)
    prompt = _load_template(package, manifest).render([{"role": "user", "content": "hi"}])
    assert prompt == "[B]||[U]|hi"


def test_a_package_without_a_template_refuses_messages_only(package):
    change(package, chat_template_file=None)
    engine = load_engine(package)
    assert run(engine, submit(engine, make_request("the cat", max_tokens=2))).last.error is None


@pytest.mark.parametrize("slots", [0, 5])
def test_slots_beyond_the_engines_are_refused(package, slots):
    with pytest.raises(EngineError, match=f"num_slots: expected 1 to 4, found {slots}"):
        load_engine(package, num_slots=slots)


def test_a_machine_that_lacks_what_is_required_is_refused_before_files_are_read(package):
    change(package, requires={"toy": ">=2.0"})
    (package / "target.onnx").unlink()
    with pytest.raises(EngineError, match="toy"):
        load_engine(package)


def test_a_missing_backend_says_what_to_install(package, monkeypatch):
    monkeypatch.setitem(SESSION_MODULES, "toy", "no_such_module")
    with pytest.raises(EngineError, match=r"Install draftsmith\[serve\]"):
        load_engine(package)
