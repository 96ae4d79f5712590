"""What is found before the server starts."""

import os
import socket
import sys
import tempfile
from pathlib import Path

import pytest
from draftsmith.builder.errors import ServeError
from draftsmith.builder.serve import ServeOptions, ServerProcess, preflight
from draftsmith.builder.serve.preflight import (
    SHM_BYTES_PER_MODEL,
    check_all,
    check_ports,
    check_shared_memory,
    find_packages,
)
from draftsmith.builder.serve.process import remove_dead_shm
from draftsmith.builder.serve.stubs import find_stubs

from tests.model_repo.toy_repository import write_toy_repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return write_toy_repository(tmp_path / "repository")


def options_for(repository: Path, **more: object) -> ServeOptions:
    return ServeOptions(repository=repository, http_port=0, grpc_port=0, metrics_port=0, **more).with_free_ports()  # type: ignore[arg-type]


def test_a_good_repository_passes_and_its_models_are_known(repository: Path) -> None:
    assert list(check_all(options_for(repository))) == ["toy"]


@pytest.mark.parametrize("name", ["config.pbtxt", "1/model.py", "1/engine.json", "1/target.onnx", "1/tokenizer.json"])
def test_a_missing_file_is_named(repository: Path, name: str) -> None:
    (repository / "toy" / name).unlink()
    with pytest.raises(ServeError, match=Path(name).name):
        check_all(options_for(repository))


def test_a_cut_file_is_named_with_its_model(repository: Path) -> None:
    (repository / "toy" / "1" / "target.onnx").write_bytes(b"")
    with pytest.raises(ServeError, match=r"toy: target.onnx: expected 2 bytes, found 0"):
        check_all(options_for(repository))


def test_a_repository_that_is_not_there_is_told_how_to_be_made(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match=r"repository: expected a folder, found none.*build-engine build"):
        find_packages(tmp_path / "nowhere", ())


def test_an_empty_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match="found no model"):
        find_packages(tmp_path, ())


def test_an_unknown_model_is_named_with_those_that_exist(repository: Path) -> None:
    with pytest.raises(ServeError, match="--model: expected one of toy, found boy"):
        find_packages(repository, ("boy",))


@pytest.mark.parametrize("field", ["http_port", "grpc_port", "metrics_port"])
def test_a_taken_port_is_named(tmp_path: Path, field: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        options = ServeOptions(repository=tmp_path, **{"http_port": 0, "grpc_port": 0, "metrics_port": 0, field: port})
        with pytest.raises(
            ServeError, match=f"--{field.replace('_', '-')} {port}: expected a free port, found it in use"
        ):
            check_ports(options)


def test_docker_s_64_mb_of_shared_memory_serve_one_model_not_two() -> None:
    check_shared_memory(1, 64_000_000)
    with pytest.raises(ServeError, match=r"expected 80,000,000 bytes free for 2 model.s., found 64,000,000"):
        check_shared_memory(2, 64_000_000)
    assert SHM_BYTES_PER_MODEL == 40_000_000


def test_a_cache_beyond_the_machines_memory_is_refused(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "machine_memory", lambda: 1000)
    with pytest.raises(ServeError, match=r"memory: expected [\d,]+ bytes \(toy .* found 1,000"):
        check_all(options_for(repository))


def test_shared_memory_of_dead_starters_alone_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftsmith.builder.serve.process.SHM", tmp_path)
    dead, alive, other = (tmp_path / name for name in ("draftsmith_4999999_a_b", f"draftsmith_{os.getpid()}_a", "else"))
    for file in (dead, alive, other):
        file.touch()
    remove_dead_shm()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([alive.name, other.name])


def test_stubs_are_found_by_parent_and_model(tmp_path: Path) -> None:
    def process(pid: int, parent: int, state: str, *arguments: str) -> None:
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} (a name) {state} {parent} 1 2")
        (folder / "cmdline").write_bytes("\0".join((*arguments, "")).encode())

    stub = "/b/python/triton_python_backend_stub"
    process(11, 10, "S", stub, "/repo/model_a/1/model.py", "prefix")
    process(12, 10, "Z", stub, "/repo/model_b/1/model.py", "prefix")
    process(13, 9, "S", stub, "/repo/model_c/1/model.py", "prefix")
    process(14, 10, "S", "/bin/sh")
    assert find_stubs(10, tmp_path) == {"model_a": 11}


def test_a_host_that_is_no_address_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match="--host: expected an address, found 'no such host'"):
        check_ports(ServeOptions(repository=tmp_path, host="no such host"))


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "127.0.0.1:7"), ("::", "[::1]:7"), ("::1", "[::1]:7"), ("10.1.2.3", "10.1.2.3:7")],  # noqa: S104
)
def test_a_client_gets_an_address_that_it_can_connect_to(tmp_path: Path, host: str, url: str) -> None:
    assert ServerProcess(ServeOptions(repository=tmp_path, host=host, grpc_port=7)).grpc_url == url


def test_an_address_of_another_machine_is_not_called_a_port_problem(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match=r"^--host: expected an address of this machine, found 192\.0\.2\.1\.$"):
        check_ports(ServeOptions(repository=tmp_path, host="192.0.2.1"))  # TEST-NET-1: nobody's


def test_a_file_in_place_of_the_repository_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "repository").touch()
    with pytest.raises(ServeError, match="repository: expected a folder, found a file"):
        find_packages(tmp_path / "repository", ())


def test_a_log_that_cannot_be_written_is_named_and_nothing_stays(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    log = tmp_path / "no such folder" / "triton.log"
    server = ServerProcess(options_for(repository, log_file=log, triton=Path(sys.executable)))
    with pytest.raises(ServeError, match=r"--log: expected a file that can be written, found no such file"):
        server.start()
    assert not list((tmp_path / "temporary").iterdir())
