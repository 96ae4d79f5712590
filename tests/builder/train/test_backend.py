"""What training says where torch, a GPU or an option is missing."""

from importlib import machinery, util
from pathlib import Path

import pytest
import torch
from draftsmith.builder.cli.train_draft import train_draft
from draftsmith.builder.errors import BackendError, UsageError
from draftsmith.builder.train import backend

from tests.builder.train.tiny_target import tiny_settings


@pytest.mark.parametrize("package", ["torch", "accelerate"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(name: str) -> machinery.ModuleSpec | None:
        return None if name == package else util.find_spec(name)

    monkeypatch.setattr(backend, "find_spec", find)

    with pytest.raises(BackendError, match=rf"package `{package}`: .*pip install 'draftsmith\[builder,train\]'"):
        backend.require_torch()


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(UsageError, match="--device: expected cpu or cuda, found tpu"):
        backend.choose_device("tpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    assert backend.choose_device(None) == "cpu"
    with pytest.raises(BackendError, match="CUDA device: expected one that torch can use"):
        backend.choose_device("cuda")


@pytest.mark.parametrize("given", ["train,finish", ""])
def test_an_unknown_stage_is_refused(given: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--stages: expected some of text, train, ranking"):
        train_draft(tmp_path, tmp_path / "out", given)


@pytest.mark.parametrize("given", ["train,text", "text,text"])
def test_stages_out_of_order_are_refused(given: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--stages: expected each once, in the order text, train, ranking"):
        train_draft(tmp_path, tmp_path / "out", given)


@pytest.mark.parametrize("count", [0, 4])
def test_more_devices_than_there_are_are_refused(count: int) -> None:
    with pytest.raises(UsageError, match=rf"--devices: expected from 1 to 1 \(cpu\), found {count}"):
        backend.check_devices(count, "cpu")


def test_settings_that_cannot_train_are_refused() -> None:
    with pytest.raises(UsageError, match="--batch: expected at least 1, found 0"):
        tiny_settings(batch=0)
    with pytest.raises(UsageError, match="--length: expected at least 7, found 6"):
        tiny_settings(length=6)
    with pytest.raises(UsageError, match="--learning-rate: expected between 0 and 1"):
        tiny_settings(learning_rate=2.0)
