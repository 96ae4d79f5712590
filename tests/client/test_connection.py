"""Addresses, TLS and headers."""

import shutil
import socket
import subprocess

import grpc
import pytest
from draftsmith.client import NO_RETRY, InvalidRequest, ServerUnavailable, TlsOptions
from draftsmith.client.connection import Connection
from draftsmith.client.testing import FakeServer

from .twins import open_client


@pytest.mark.parametrize(
    ("url", "target", "is_tls"),
    [
        ("localhost:9000", "localhost:9000", False),
        ("localhost", "localhost:8001", False),
        ("grpc://10.0.0.1:1", "10.0.0.1:1", False),
        ("grpcs://example.com", "example.com:8001", True),
        ("[::1]:8001", "[::1]:8001", False),
    ],
)
def test_addresses(url, target, is_tls):
    connection = Connection.parse(url, None, None)
    assert (connection.target, connection.tls is not None) == (target, is_tls)


@pytest.mark.parametrize("url", ["http://localhost:8000", "localhost:", "localhost:x", "a:1/b", "", None, ":8001"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(InvalidRequest, match="url: expected host:port"):
        Connection.parse(url, None, None)


def test_tls_options_with_a_plain_address_mean_tls():
    assert Connection.parse("localhost:1", TlsOptions(), None).tls is not None
    with pytest.raises(InvalidRequest, match="url: expected grpcs:// with TLS options"):
        Connection.parse("grpc://localhost:1", TlsOptions(), None)


@pytest.mark.parametrize("headers", [{"a": 1}, {"": "b"}, {"a": "ä"}])
def test_headers_are_checked(headers):
    with pytest.raises(InvalidRequest, match="headers: expected ASCII strings"):
        Connection.parse("localhost:1", None, headers)


def test_half_of_a_client_certificate_is_refused():
    with pytest.raises(InvalidRequest, match="tls: expected private_key and certificate_chain together"):
        TlsOptions(private_key=b"key").credentials()


def test_a_missing_file_is_named(tmp_path):
    missing = tmp_path / "ca.pem"
    with pytest.raises(InvalidRequest, match=r"root_certificates: expected a readable PEM file.*ca\.pem"):
        TlsOptions(root_certificates=missing).credentials()


def test_the_private_key_is_not_shown():
    assert "secret" not in repr(TlsOptions(private_key=b"secret", certificate_chain=b"c"))


def test_a_port_where_nobody_speaks_grpc_asks_about_the_port(kind):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free_port = listener.getsockname()[1]
    with (
        open_client(kind, f"127.0.0.1:{free_port}", retry=NO_RETRY) as client,
        pytest.raises(ServerUnavailable, match=r"is this its gRPC port \(usually 8001\)\?"),
    ):
        client.models()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for localhost: paths of key and certificate."""
    folder = tmp_path_factory.mktemp("tls")
    key, chain = folder / "key.pem", folder / "chain.pem"
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *kind, "-keyout", key, "-out", chain, *subject]
    subprocess.run(command, check=True, capture_output=True)
    return key, chain


def serve_with_tls(certificate, *, ask_client=False):
    key, chain = (path.read_bytes() for path in certificate)
    roots = chain if ask_client else None
    credentials = grpc.ssl_server_credentials([(key, chain)], roots, require_client_auth=ask_client)
    return FakeServer(credentials=credentials)


def test_tls_with_the_right_root(certificate, kind):
    with (
        serve_with_tls(certificate) as server,
        open_client(kind, server.url, tls=TlsOptions(root_certificates=certificate[1])) as client,
    ):
        assert client.generate("over TLS").text == "over TLS"


def test_tls_with_a_client_certificate(certificate, kind):
    key, chain = certificate
    tls = TlsOptions(root_certificates=chain, private_key=key, certificate_chain=chain.read_bytes())
    with serve_with_tls(certificate, ask_client=True) as server, open_client(kind, server.url, tls=tls) as client:
        assert client.generate("both ways").text == "both ways"


def test_tls_without_the_root_is_unavailable(certificate, kind):
    with (
        serve_with_tls(certificate) as server,
        open_client(kind, server.url, retry=NO_RETRY) as client,
        pytest.raises(ServerUnavailable),
    ):
        client.generate("x")
