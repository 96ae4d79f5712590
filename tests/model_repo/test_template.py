"""model.py as Triton runs it, with stand-ins for Triton's module and for the engine."""

import importlib.util
import json
import sys
import types
from pathlib import Path

import draftsmith.model_repo.template
import pytest

from tests.model_repo import fake_pb_utils
from tests.model_repo.fake_pb_utils import request_of
from tests.model_repo.toy_engine import ToyEngine

SOURCE = Path(draftsmith.model_repo.template.__path__[0]) / "model.py"


@pytest.fixture
def loaded(monkeypatch, tmp_path):
    """Load model.py; ``loads`` records what ``load_engine`` was asked for, ``unloaded`` the models that left."""
    loads, unloaded = [], []
    loading = types.ModuleType("draftsmith.model_repo.runtime.loading")

    def load_engine(folder, **options):
        loads.append((folder, options))
        return ToyEngine(step_s=0.0)

    loading.load_engine = load_engine
    monkeypatch.setitem(sys.modules, "draftsmith.model_repo.runtime.loading", loading)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake_pb_utils)
    monkeypatch.setattr(fake_pb_utils, "unload_model", unloaded.append, raising=False)
    for name in ("DRAFTSMITH_NUM_THREADS", "DRAFTSMITH_NUM_SLOTS"):
        monkeypatch.delenv(name, raising=False)
    spec = importlib.util.spec_from_file_location("packaged_model", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return types.SimpleNamespace(kind=module.TritonPythonModel, loads=loads, unloaded=unloaded, folder=tmp_path)


def start(loaded, **parameters):
    model = loaded.kind()
    config = {"parameters": {name: {"string_value": value} for name, value in parameters.items()}}
    model.initialize(
        {
            "model_name": "m",
            "model_repository": str(loaded.folder),
            "model_version": "1",
            "model_config": json.dumps(config),
        }
    )
    return model


def test_it_is_an_adapter_of_at_most_80_lines():
    assert len(SOURCE.read_text().splitlines()) <= 80


def test_execute_queues_and_returns_none(loaded):
    model = start(loaded)
    requests = [request_of("count 1"), request_of("count 2")]
    assert model.execute(requests) is None
    for request in requests:
        assert request.sender.final.wait(20)
        assert request.sender.responses[-1].tensors["finish_reason"].tolist() == [b"length"]
    model.finalize()


def test_engine_comes_from_the_version_folder_with_the_parameters(loaded):
    start(loaded, num_threads="3", num_slots="5").finalize()
    assert loaded.loads == [(loaded.folder / "1", {"num_threads": 3, "num_slots": 5})]


def test_without_parameters_the_engine_decides(loaded):
    start(loaded).finalize()
    assert loaded.loads == [(loaded.folder / "1", {"num_threads": None, "num_slots": None})]


def test_environment_overrides_the_parameters(loaded, monkeypatch):
    monkeypatch.setenv("DRAFTSMITH_NUM_THREADS", "7")
    start(loaded, num_threads="3").finalize()
    assert loaded.loads[0][1]["num_threads"] == 7


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_parameter_that_is_no_count_keeps_the_model_from_loading(loaded, text):
    with pytest.raises(ValueError, match=f"num_slots: expected a positive integer, found '{text}'"):
        start(loaded, num_slots=text)


def test_dead_loop_is_not_ready_and_unloads_the_model(loaded):
    model = start(loaded)
    assert model.is_ready()
    request = request_of("die")
    model.execute([request])
    assert request.sender.final.wait(20)
    assert not model.is_ready()
    while not loaded.unloaded:
        request.sender.final.wait(0.001)
    assert loaded.unloaded == ["m"]
    model.finalize()


def test_finalize_ends_running_requests(loaded):
    model = start(loaded)
    request = request_of("wait")
    model.execute([request])
    model.finalize()
    assert request.sender.final.is_set()
