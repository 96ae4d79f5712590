"""``build-engine serve``: a Triton server with a model repository, until it is told to end."""

from pathlib import Path
from typing import Annotated

import typer

from .output import JsonOption, QuietOption, open_progress, print_json, say
from .paths import to_path


def serve_repository(
    repository: Annotated[
        Path,
        typer.Argument(parser=to_path, metavar="REPOSITORY", help="Model repository, as build and package write it."),
    ],
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="Serve this model only (repeatable); default all.")
    ] = None,
    http_port: Annotated[int, typer.Option(help="HTTP port; 0 takes a free one.")] = 8000,
    grpc_port: Annotated[int, typer.Option(help="gRPC port; 0 takes a free one.")] = 8001,
    metrics_port: Annotated[int, typer.Option(help="Prometheus port; 0 takes a free one.")] = 8002,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for every network.")] = "127.0.0.1",
    threads: Annotated[int | None, typer.Option(help="Threads a model computes with; default: the package's.")] = None,
    triton: Annotated[
        Path | None, typer.Option(parser=to_path, metavar="PROGRAM", help="The tritonserver program; default: found.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(parser=to_path, metavar="FILE", help="Where the server's log goes.")
    ] = None,
    ready_timeout: Annotated[float, typer.Option(help="Seconds the models may take to load.")] = 300.0,
    grace: Annotated[float, typer.Option(help="Seconds that running requests get at the end.")] = 10.0,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Start Triton with a model repository and wait; Ctrl-C or SIGTERM ends it.

    Prints the endpoints once every model is ready.

    Example: [cyan]build-engine serve repository --grpc-port 8001[/cyan]
    """
    from ..serve import ServeOptions, ServerProcess

    options = ServeOptions(
        repository=repository,
        models=tuple(model or ()),
        host=host,
        http_port=http_port,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        num_threads=threads,
        triton=triton,
        log_file=log,
        ready_timeout_s=ready_timeout,
        stop_grace_s=grace,
    )
    with ServerProcess(options, open_progress(quiet)) as server:
        _announce(server.models, server.http_url, server.grpc_url, server.metrics_url, json=json)
        say(f"Try: build-engine chat {server.grpc_url} -m {server.models[0]}     Ctrl-C ends the server.", quiet=quiet)
        server.wait()


def _announce(models: tuple[str, ...], http_url: str, grpc_url: str, metrics_url: str, *, json: bool) -> None:
    if json:
        print_json({"ready": True, "models": list(models), "http": http_url, "grpc": grpc_url, "metrics": metrics_url})
    else:
        print(f"ready: {', '.join(models)}\ngrpc     {grpc_url}\nhttp     http://{http_url}")
        print(f"metrics  http://{metrics_url}/metrics", flush=True)
