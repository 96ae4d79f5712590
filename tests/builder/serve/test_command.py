"""How Triton is started."""

import os
import sys
import sysconfig
from pathlib import Path

import pytest
from draftsmith.builder.errors import BackendError, UsageError
from draftsmith.builder.serve import ServeOptions, locate
from draftsmith.builder.serve.command import server_command, server_environment
from draftsmith.builder.serve.locate import TritonInstallation, find_triton, link_backend


@pytest.fixture
def bundled(tmp_path: Path) -> Path:
    """A folder laid out like nvidia-pytriton's."""
    root = tmp_path / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for name in (
        "bin/tritonserver",
        "backends/python/libtriton_python.so",
        "backends/python/triton_python_backend_utils.py",
        f"python_backend_stubs/{version}/triton_python_backend_stub",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_the_backend_folder_gets_the_stub_of_this_python(bundled: Path, tmp_path: Path) -> None:
    backend = link_backend(bundled, tmp_path / "run") / "python"
    names = sorted(p.name for p in backend.iterdir())
    assert names == ["libtriton_python.so", "triton_python_backend_stub", "triton_python_backend_utils.py"]
    assert all(p.resolve().is_relative_to(bundled) for p in backend.iterdir())


def test_models_are_loaded_by_name_and_ports_are_set(bundled: Path, tmp_path: Path) -> None:
    options = ServeOptions(repository=tmp_path, http_port=1, grpc_port=2, metrics_port=3)
    triton = TritonInstallation(program=bundled / "bin" / "tritonserver", bundled_root=bundled)
    command = server_command(triton, options, ["a", "b"], tmp_path / "run", "prefix_")
    assert command[0] == str(triton.program)
    assert {"--load-model=a", "--load-model=b", "--http-port=1", "--grpc-port=2", "--metrics-port=3"} <= set(command)
    assert "--model-control-mode=explicit" in command
    assert f"--backend-directory={tmp_path / 'run' / 'backends'}" in command


def test_a_server_on_the_path_uses_its_own_backends(tmp_path: Path) -> None:
    triton = TritonInstallation(program=tmp_path / "tritonserver", bundled_root=None)
    command = server_command(triton, ServeOptions(repository=tmp_path), ["a"], tmp_path / "run", "prefix_")
    assert not any(argument.startswith("--backend-directory") for argument in command)


@pytest.fixture
def own(tmp_path: Path) -> TritonInstallation:
    """A server that brings its own folders."""
    return TritonInstallation(program=tmp_path / "tritonserver", bundled_root=None)


def test_this_python_comes_first_and_the_users_settings_stay(
    monkeypatch: pytest.MonkeyPatch, own: TritonInstallation
) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", {"LIBDIR": "/opt/py/lib", "Py_ENABLE_SHARED": 1}.get)
    env = server_environment({"PATH": "/bin", "GLIBC_TUNABLES": "x", "LD_LIBRARY_PATH": "/mine"}, own, 3)
    assert env["PATH"] == f"{Path(sys.executable).parent}{os.pathsep}/bin"
    assert env["LD_LIBRARY_PATH"] == f"/opt/py/lib{os.pathsep}/mine"
    assert (env["GLIBC_TUNABLES"], env["DRAFTSMITH_NUM_THREADS"]) == ("x", "3")


@pytest.mark.parametrize(
    "facts", [{"LIBDIR": "/usr/lib", "Py_ENABLE_SHARED": 1}, {"LIBDIR": "/opt", "Py_ENABLE_SHARED": 0}]
)
def test_a_python_that_needs_no_help_gets_none(
    monkeypatch: pytest.MonkeyPatch, own: TritonInstallation, facts: dict[str, object]
) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", facts.get)
    env = server_environment({}, own, None)
    assert "LD_LIBRARY_PATH" not in env
    assert "DRAFTSMITH_NUM_THREADS" not in env
    assert "DRAFTSMITH_NUMPY1_STUB" not in env


def test_nvidia_pytritons_stub_is_known_to_expect_numpy_1(bundled: Path) -> None:
    triton = TritonInstallation(program=bundled / "bin" / "tritonserver", bundled_root=bundled)
    assert server_environment({}, triton, None)["DRAFTSMITH_NUMPY1_STUB"] == "1"


def test_a_machine_without_triton_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locate, "bundled_root", lambda: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackendError, match=r"expected on the PATH.*pip install --no-deps nvidia-pytriton"):
        find_triton()


def test_a_python_without_a_stub_is_named(monkeypatch: pytest.MonkeyPatch, bundled: Path) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    (bundled / "python_backend_stubs" / version).rename(bundled / "python_backend_stubs" / "3.1")
    monkeypatch.setattr(locate, "bundled_root", lambda: bundled)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackendError, match=f"stub for Python {version}, found 3.1"):
        find_triton()


def test_a_named_program_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="--triton"):
        find_triton(tmp_path / "nowhere")


def test_two_endpoints_cannot_share_a_port(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--http-port: expected another port than --grpc-port, found 5"):
        ServeOptions(repository=tmp_path, http_port=5, grpc_port=5)


def test_free_ports_are_three_different_ones(tmp_path: Path) -> None:
    options = ServeOptions(repository=tmp_path, http_port=0, grpc_port=0, metrics_port=0).with_free_ports()
    ports = {options.http_port, options.grpc_port, options.metrics_port}
    assert len(ports) == 3
    assert 0 not in ports


def test_a_path_that_a_shell_would_split_is_served_through_a_link(tmp_path: Path) -> None:
    repository = tmp_path / "some where"
    repository.mkdir()
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    triton = TritonInstallation(program=tmp_path / "tritonserver", bundled_root=None)
    command = server_command(triton, ServeOptions(repository=repository), ["a"], run_folder, "prefix_")
    assert f"--model-repository={run_folder / 'repository'}" in command
    assert (run_folder / "repository").resolve() == repository


def test_an_ipv6_address_is_written_as_each_server_wants_it(tmp_path: Path, own: TritonInstallation) -> None:
    command = server_command(own, ServeOptions(repository=tmp_path, host="::1"), ["a"], tmp_path / "run", "prefix_")
    assert {"--http-address=ipv6:::1", "--grpc-address=[::1]", "--metrics-address=ipv6:::1"} <= set(command)
