import pytest
from draftsmith.client.testing import FakeServer

from .twins import KINDS, open_client


@pytest.fixture
def server():
    with FakeServer() as server:
        yield server


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def client(kind, server):
    with open_client(kind, server.url) as client:
        yield client
