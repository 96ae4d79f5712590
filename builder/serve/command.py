"""How Triton is started: its arguments and its environment. Pure functions."""

import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path

from .locate import TritonInstallation, link_backend
from .options import ServeOptions

_SYSTEM_LIBRARIES = ("/lib", "/usr/lib", "/usr/local/lib")


def server_command(
    triton: TritonInstallation, options: ServeOptions, models: Iterable[str], run_folder: Path, shm_prefix: str
) -> list[str]:
    """The argument list. Models are loaded by name, so that stray folders in the repository cannot stop the server."""
    # An IPv6 address is written in another way for each of Triton's servers.
    is_v6 = ":" in options.host
    grpc_host = f"[{options.host}]" if is_v6 else options.host
    web_host = f"ipv6:{options.host}" if is_v6 else options.host
    command = [
        str(triton.program),
        f"--model-repository={_plain_path(options.repository.resolve(), run_folder)}",
        "--model-control-mode=explicit",
        *[f"--load-model={name}" for name in models],
        f"--http-address={web_host}",
        f"--grpc-address={grpc_host}",
        f"--metrics-address={web_host}",
        f"--http-port={options.http_port}",
        f"--grpc-port={options.grpc_port}",
        f"--metrics-port={options.metrics_port}",
        f"--exit-timeout-secs={max(1, int(options.stop_grace_s))}",
        f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
        "--allow-gpu-metrics=false",
        "--pinned-memory-pool-byte-size=0",
    ]
    if triton.bundled_root is not None:
        command.append(f"--backend-directory={link_backend(triton.bundled_root, run_folder)}")
        command.append(f"--cache-directory={triton.bundled_root / 'caches'}")
    return command


def _plain_path(repository: Path, run_folder: Path) -> Path:
    """The repository, through a link where its path has spaces or the like: Triton starts its stubs through a shell.

    (With a space the stub never comes up and the server waits for it for ever; seen with Triton 2.51.)
    """
    if re.fullmatch(r"[\w./+,@%=:-]+", str(repository), re.ASCII):
        return repository
    link = run_folder / "repository"
    link.symlink_to(repository)
    return link


def server_environment(base: Mapping[str, str], triton: TritonInstallation, num_threads: int | None) -> dict[str, str]:
    """The environment: this Python first on the PATH (the stub takes its packages from there) and its libpython found.

    Huge pages for the allocator are worth 10 to 20 % of a step (cpu-notes). NumPy's own threads only get in the way of
    the engine's.
    """
    env = dict(base)
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    library = sysconfig.get_config_var("LIBDIR")
    shared = sysconfig.get_config_var("Py_ENABLE_SHARED")
    if shared and library and not str(library).startswith(_SYSTEM_LIBRARIES):
        rest = env.get("LD_LIBRARY_PATH")
        env["LD_LIBRARY_PATH"] = str(library) + (os.pathsep + rest if rest else "")
    env.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    env.setdefault("OPENBLAS_NUM_THREADS", "1")
    env.setdefault("OMP_NUM_THREADS", "1")
    if triton.bundled_root is not None:
        env["DRAFTSMITH_NUMPY1_STUB"] = "1"
    if num_threads is not None:
        env["DRAFTSMITH_NUM_THREADS"] = str(num_threads)
    return env
