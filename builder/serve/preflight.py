"""Finds what would stop the server before it starts: bad packages, taken ports, too little memory or shared memory."""

import errno
import os
import socket
from pathlib import Path

from draftsmith.model_repo.contract.errors import ManifestError
from draftsmith.model_repo.contract.manifest import MANIFEST_NAME, Manifest

from ..errors import ServeError
from ..package.manifest import check_files, read_manifest
from ..package.space import check_memory, machine_memory
from .options import ServeOptions

SHM = Path("/dev/shm")  # noqa: S108 - Triton's stubs talk to the server through it
# A stub's region starts at 1 MiB and grows with the largest requests: 10 MB of prompt, in and out of the server.
SHM_BYTES_PER_MODEL = 40_000_000


def find_packages(repository: Path, models: tuple[str, ...]) -> dict[str, Manifest]:
    """The models to serve with their manifests, files and sizes checked; raises ``ServeError`` naming what is wrong."""
    if not repository.is_dir():
        raise ServeError(
            "repository",
            expected="a folder",
            found="a file" if repository.exists() else "none",
            where=str(repository),
            action="Build one with: build-engine build CHECKPOINT --output " + str(repository),
        )
    have = sorted(p.parent.parent.name for p in repository.glob("[!.]*/1/" + MANIFEST_NAME))
    for name in models:
        if name not in have:
            raise ServeError(
                "--model", expected=f"one of {', '.join(have) or 'none'}", found=name, where=str(repository)
            )
    broken = [p.name for p in repository.glob("[!.]*") if p.is_dir() and p.name not in have and (p / "1").is_dir()]
    if broken and not models:
        raise ServeError(f"{broken[0]}/1/{MANIFEST_NAME}", expected="a file", found="none", where=str(repository))
    if not have:
        raise ServeError("repository", expected="<model>/1/engine.json", found="no model", where=str(repository))
    return {name: _check_package(repository / name) for name in models or have}


def _check_package(folder: Path) -> Manifest:
    try:
        manifest = read_manifest(folder / "1")
        check_files(folder / "1", manifest)
    except ManifestError as error:
        raise ServeError(f"{folder.name}: {error}".removesuffix(".")) from error
    for name in ("config.pbtxt", "1/model.py"):
        if not (folder / name).is_file():
            raise ServeError(f"{folder.name}/{name}", expected="a file", found="none", where=str(folder))
    return manifest


def check_ports(options: ServeOptions) -> None:
    """Raise ``ServeError`` naming the first port that is taken or not allowed."""
    for name in ("http_port", "grpc_port", "metrics_port"):
        port = getattr(options, name)
        with socket.socket(options.family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((options.host, port))
            except socket.gaierror as error:
                raise ServeError("--host", expected="an address", found=repr(options.host)) from error
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    raise ServeError("--host", expected="an address of this machine", found=options.host) from error
                found = "it in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error)).lower()
                flag = "--" + name.replace("_", "-")
                raise ServeError(
                    f"{flag} {port}",
                    expected="a free port",
                    found=found,
                    where=options.host,
                    action=f"Choose another one with {flag}, or 0 for any",
                ) from error


def check_shared_memory(num_models: int, free_bytes: int | None = None) -> None:
    """Raise ``ServeError`` where /dev/shm has too little room for the models' stubs, with the need."""
    if free_bytes is None:
        facts = os.statvfs(SHM)
        free_bytes = facts.f_bavail * facts.f_frsize
    need = num_models * SHM_BYTES_PER_MODEL
    if free_bytes < need:
        raise ServeError(
            str(SHM),
            expected=f"{need:,} bytes free for {num_models} model(s)",
            found=f"{free_bytes:,}",
            action="Start the container with --shm-size=256m, or serve fewer models with --model",
        )


def check_all(options: ServeOptions) -> dict[str, Manifest]:
    """Every check, in the order a user can act on; returns the manifests by model name."""
    manifests = find_packages(options.repository, options.models)
    check_memory(manifests, machine_memory())
    check_shared_memory(len(manifests))
    check_ports(options)
    return manifests
