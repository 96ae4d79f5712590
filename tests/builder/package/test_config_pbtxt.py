"""``config.pbtxt`` read back by Triton's own definition."""

import re
from dataclasses import replace

import pytest
from draftsmith.builder.package.config_pbtxt import render_config
from draftsmith.model_repo.contract.manifest import Manifest
from draftsmith.model_repo.contract.tensors import REQUEST_FIELDS, RESPONSE_FIELDS
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2


def parse(text: str) -> model_config_pb2.ModelConfig:
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def test_triton_reads_every_field_of_the_contract(manifest: Manifest) -> None:
    config = parse(render_config("tiny_int8", manifest, {"num_threads": "2"}))
    assert (config.name, config.backend, config.max_batch_size) == ("tiny_int8", "python", 0)
    assert config.model_transaction_policy.decoupled
    assert config.parameters["num_threads"].string_value == "2"
    types = {"TYPE_STRING": "BYTES"}
    for fields, side in ((REQUEST_FIELDS, config.input), (RESPONSE_FIELDS, config.output)):
        assert [f.name for f in fields] == [entry.name for entry in side]
        for field, entry in zip(fields, side, strict=True):
            name = model_config_pb2.DataType.Name(entry.data_type)
            assert types.get(name, name.removeprefix("TYPE_")) == field.type
            assert tuple(entry.dims) == field.dims
    assert all(entry.optional for entry in config.input)


def test_one_process_on_the_cpu_holds_the_engine(manifest: Manifest) -> None:
    config = parse(render_config("tiny", manifest, {}))
    assert [(group.count, group.kind) for group in config.instance_group] == [
        (1, model_config_pb2.ModelInstanceGroup.KIND_CPU)
    ]


def test_every_field_is_explained_and_no_placeholder_is_left(manifest: Manifest) -> None:
    text = render_config("tiny", manifest, {})
    for field in (*REQUEST_FIELDS, *RESPONSE_FIELDS):
        assert f"# {field.help}\n" in text
    assert not re.search(r"\$\{|\{\{|\}\}|<[a-z_]+>|TODO|None", text)


@pytest.mark.parametrize("name", ['quote"inside', "back\\slash", "naïve"])
def test_odd_names_survive(manifest: Manifest, name: str) -> None:
    assert parse(render_config(name, replace(manifest, model_name=name), {})).name == name
