"""``--config NAME=FOLDER,key=value``."""

from pathlib import Path

import pytest
from draftsmith.builder.errors import UsageError
from draftsmith.builder.evaluate.configuration import Configuration, parse_configuration, parse_configurations


def test_a_name_and_a_folder_are_enough() -> None:
    assert parse_configuration("fast=a/b") == Configuration(name="fast", folder=Path("a/b"))


def test_keys_say_how_requests_draft() -> None:
    found = parse_configuration("fast=a,draft=model,width=4,depth=6,nodes=24,k=2048")
    assert (found.draft, found.width, found.depth, found.nodes, found.num_candidates) == ("model", 4, 6, 24, 2048)
    assert found.settings == "draft=model, width=4, depth=6, nodes=24, k=2048"


def test_trees_may_be_of_one_size() -> None:
    found = parse_configuration("fast=a,width=1,depth=2,nodes=2,tree=fixed")
    assert (found.fixed_nodes, found.settings) == (2, "draft=auto, width=1, depth=2, nodes=2, tree=fixed")
    assert parse_configuration("fast=a,nodes=2").fixed_nodes is None


def test_a_folder_may_have_commas_and_equals_signs_before_the_keys() -> None:
    assert parse_configuration("x=a,b,draft=off").folder == Path("a,b")
    assert parse_configuration("x=a=b").folder == Path("a=b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fast", "NAME=ENGINE_FOLDER"),
        ("=a", "NAME=ENGINE_FOLDER"),
        ("fast=", "NAME=ENGINE_FOLDER"),
        ("plain=a", "other than plain"),
        ("x=a,speed=3", "expected the keys draft, width, depth, nodes, k, tree, found 'speed=3'"),
        ("x=a,tree=large", "tree=adaptive|fixed"),
        ("x=a,tree=fixed,nodes=4", "width, depth and nodes beside tree=fixed, found draft=auto, nodes=4, tree=fixed"),
        ("x=a,draft=eagle", "draft=auto|model|ngram|off"),
        ("x=a,width=0", "width from 1 to 16, found '0'"),
        ("x=a,depth=-1", "depth from 0 to 64, found '-1'"),
        ("x=a,nodes=²", "nodes from 0 to 64"),
        ("x=a,k=4,k=5", "k once"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match="--config") as caught:
        parse_configuration(text)
    assert words in str(caught.value)


def test_names_differ_and_there_is_one() -> None:
    with pytest.raises(UsageError, match="'x' twice"):
        parse_configurations(["x=a", "x=b"])
    with pytest.raises(UsageError, match="found none"):
        parse_configurations([])
