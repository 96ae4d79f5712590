"""What a call returns, and the calls that only ask about the server."""

import pytest
from draftsmith.client import (
    DraftStatistics,
    InvalidRequest,
    ModelNotFound,
    Result,
    ServerUnavailable,
    TokenLogProb,
    Usage,
)
from draftsmith.client.testing import FakeServer, Finish, Say
from draftsmith.model_repo.contract.tensors import REQUEST_FIELDS

from .twins import KINDS, open_client


def test_result_joins_everything(server, client):
    server.answer(
        Say("Hel", [1, 2], log_probs=[-0.5, -1.5], top=[[(1, -0.5), (7, -2.0)], [(9, -0.25), (2, -1.5)]]),
        Say("lo", [3], log_probs=[-0.25], top=[[(3, -0.25), (4, -3.0)]]),
        Finish("end_id", num_input_tokens=4, num_output_tokens=3, drafted=8, accepted=2, target_steps=5),
    )
    assert client.generate("x") == Result(
        text="Hello",
        token_ids=(1, 2, 3),
        finish_reason="end_id",
        usage=Usage(input=4, output=3),
        draft=DraftStatistics(drafted=8, accepted=2, target_steps=5),
        log_probs=(-0.5, -1.5, -0.25),
        top_log_probs=(
            (TokenLogProb(1, -0.5), TokenLogProb(7, -2.0)),
            (TokenLogProb(9, -0.25), TokenLogProb(2, -1.5)),
            (TokenLogProb(3, -0.25), TokenLogProb(4, -3.0)),
        ),
    )


def test_acceptance_rate_is_accepted_by_drafted():
    assert DraftStatistics(drafted=8, accepted=2, target_steps=1).acceptance_rate == 0.25
    assert DraftStatistics(drafted=0, accepted=0, target_steps=1).acceptance_rate == 0.0


@pytest.fixture(params=KINDS)
def mixed(request):
    """A client of a server with two of our models, one of somebody else's and one that is not ready."""
    with (
        FakeServer(["b", "a"], other_models=["resnet"], unready_models=["old"]) as server,
        open_client(request.param, server.url) as client,
    ):
        yield client


def test_models_tells_which_are_ours_and_ready(mixed):
    facts = [(model.name, model.ready, model.is_draftsmith) for model in mixed.models()]
    assert facts == [("b", True, True), ("a", True, True), ("resnet", True, False), ("old", False, False)]


def test_a_choice_of_models_is_an_error_that_lists_them(mixed):
    with pytest.raises(ModelNotFound, match=r"model: expected one of a, b, found none. Pass `model=`"):
        mixed.generate("x")
    assert mixed.generate("x y", model="a").text == "x y"


def test_a_server_without_our_models_says_what_it_has(kind):
    with (
        FakeServer([], other_models=["resnet"], unready_models=["old"]) as server,
        open_client(kind, server.url) as client,
        pytest.raises(ModelNotFound, match=r"found resnet \(not one of ours\), old \(unloaded\)"),
    ):
        client.generate("x")


def test_ready_is_about_the_server_and_the_named_model(mixed):
    assert mixed.ready()
    assert mixed.ready("a")
    assert not mixed.ready("old")
    assert not mixed.ready("none")


def test_a_server_that_is_away_is_not_ready(kind):
    with FakeServer() as server:
        url = server.url
    with open_client(kind, url) as client:
        assert not client.ready()
        with pytest.raises(ServerUnavailable):
            client.models()


def test_a_server_that_is_not_ready_says_so(server, client):
    server.ready = False
    assert not client.ready()


def test_metadata_describes_the_tensors(client):
    metadata = client.metadata()
    assert (metadata.name, metadata.versions, metadata.server_name) == ("tiny", ("1",), "fake")
    assert [tensor.name for tensor in metadata.inputs] == [field.name for field in REQUEST_FIELDS]
    assert metadata.inputs[1].dims == (-1,)
    with pytest.raises(ModelNotFound, match=r"^model: expected one that is served, found .*'none' is not found"):
        client.metadata("none")


@pytest.mark.parametrize("model", ["", 3])
def test_model_names_are_checked(kind, model):
    with pytest.raises(InvalidRequest, match="model: expected a name or None"):
        open_client(kind, "localhost", model=model)
