"""The package's surface: the twins do not drift apart, and importing it needs neither onnx nor torch."""

import ast
import inspect
import subprocess
import sys
from dataclasses import fields
from typing import get_type_hints

import draftsmith.client
import pytest
from draftsmith.client import AsyncClient, AsyncStream, Client, Stream
from draftsmith.client.options import SamplingOptions
from draftsmith.model_repo.contract.params import SamplingParams

TWINS = [(Client, AsyncClient), (Stream, AsyncStream)]
ASYNC_NAMES = {"__enter__": "__aenter__", "__exit__": "__aexit__", "__next__": "__anext__"}


def public(kind):
    return {name for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("blocking", "asyncio"), TWINS)
def test_twins_have_the_same_public_names(blocking, asyncio):
    assert public(blocking) == public(asyncio)
    for name, twin in ASYNC_NAMES.items():
        assert hasattr(blocking, name) == hasattr(asyncio, twin)


@pytest.mark.parametrize(("blocking", "asyncio"), TWINS)
def test_twins_have_the_same_signatures(blocking, asyncio):
    for name in [*public(blocking), "__init__"]:
        one, other = getattr(blocking, name), getattr(asyncio, name)
        if callable(one):
            assert inspect.signature(one).parameters.keys() == inspect.signature(other).parameters.keys(), name
            for parameter in inspect.signature(one).parameters.values():
                twin = inspect.signature(other).parameters[parameter.name]
                assert (parameter.default, parameter.kind) == (twin.default, twin.kind), (name, parameter.name)


def test_sampling_options_are_the_fields_of_sampling_params():
    assert list(get_type_hints(SamplingOptions)) == [field.name for field in fields(SamplingParams)]


def test_all_is_sorted_and_complete():
    names = draftsmith.client.__all__
    assert sorted(names) == sorted(set(names))
    for name in names:
        assert hasattr(draftsmith.client, name)
    tree = ast.parse(inspect.getsource(draftsmith.client))
    imported = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported == set(names)


def test_every_public_thing_has_a_docstring():
    for name in draftsmith.client.__all__:
        thing = getattr(draftsmith.client, name)
        if inspect.isclass(thing):
            assert thing.__doc__, name
            for method in public(thing):
                member = inspect.getattr_static(thing, method)
                if inspect.isfunction(member) or isinstance(member, property):
                    assert member.__doc__, f"{name}.{method}"


@pytest.mark.parametrize("module", ["draftsmith.client", "draftsmith.client.testing", "draftsmith.client.chat"])
def test_import_needs_neither_onnx_nor_torch(module):
    code = (
        f"import sys, {module}\n"
        "heavy = {'onnx', 'onnxruntime', 'tokenizers', 'torch', 'transformers', 'jinja2', 'typer', 'rich'}\n"
        "ours = {name for name in sys.modules if name.startswith(('draftsmith.builder', 'draftsmith.plugins',\n"
        "                                                         'draftsmith.model_repo.runtime'))}\n"
        "print(sorted(heavy & set(sys.modules)), sorted(ours))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[] []\n"
