"""``build-engine plugins``: ``build`` compiles the GPU kernels and TensorRT plugin libraries, ``list`` shows them."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import BuildError, UsageError
from .output import JsonOption, QuietOption, megabytes, open_progress, print_json, print_table
from .paths import check_output, to_path

HEADERS_VARIABLE = "DRAFTSMITH_TENSORRT_HEADERS"

plugins = typer.Typer(
    help="Build and list the libraries with our CUDA kernels and TensorRT plugins.\n\n"
    "Example: [cyan]build-engine plugins build --output plugins[/cyan]",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Output = Annotated[
    Path, typer.Option("--output", "-o", parser=to_path, metavar="FOLDER", help="Folder that gets the libraries.")
]
TensorRT = Annotated[
    list[str] | None,
    typer.Option(
        "--tensorrt", "-t", help="8.6, 10 or 11 (repeatable); none: kernels alone. Default: those with headers."
    ),
]
Cuda = Annotated[
    Path | None,
    typer.Option(parser=to_path, metavar="FOLDER", help="CUDA 12 or 13, a folder with bin/nvcc; default: found."),
]
Headers = Annotated[
    Path | None,
    typer.Option(
        parser=to_path,
        metavar="FOLDER",
        envvar=HEADERS_VARIABLE,
        help="Folder with NvInfer.h, or of such folders; default: where packages put it.",
    ),
]
Arch = Annotated[
    str | None, typer.Option(help="GPU architectures such as 90,120; default: 7.5 to 12.x and PTX for later ones.")
]
Folder = Annotated[Path, typer.Argument(parser=to_path, metavar="FOLDER", help="Folder with the libraries.")]


@plugins.command("build")
def build_libraries(
    output: Output,
    tensorrt: TensorRT = None,
    cuda: Cuda = None,
    headers: Headers = None,
    arch: Arch = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compile the kernels and a plugin library for each TensorRT; needs nvcc and CMake, no GPU.

    Example: [cyan]build-engine plugins build --output plugins --tensorrt 10 --arch 90[/cyan]
    """
    from ..plugin_build import PluginBuild, build_plugins, check_architectures, find_headers, find_toolchain

    check_output(output)
    versions = tuple(dict.fromkeys(name.strip() for text in tensorrt or () for name in text.split(",")))
    architectures = _architectures(arch)
    check_architectures(architectures)
    plan = PluginBuild(
        headers=find_headers(versions, headers),
        architectures=architectures,
        toolchain=find_toolchain(cuda),
        output=output,
    )
    built = build_plugins(plan, open_progress(quiet))
    if json:
        print_json({"libraries": [library.to_dict() for library in built]})
        return
    rows = [[b.path, b.tensorrt or "-", b.cuda, megabytes(b.num_bytes)] for b in built]
    print_table(["built", "TensorRT", "CUDA", "size"], rows)


@plugins.command("list")
def list_libraries(folder: Folder, json: JsonOption = False) -> None:
    """List the plugin libraries of a folder: what each is for, read from its file without loading it.

    Example: [cyan]build-engine plugins list plugins[/cyan]
    """
    from ..plugin_build.listing import list_libraries as read_folder

    if not folder.is_dir():
        raise UsageError("folder", expected="a folder", found="none of this name", where=str(folder))
    rows = read_folder(folder)
    if not rows:
        raise BuildError(
            "plugins",
            expected="libdraftsmith_plugins_*.so",
            found="none",
            where=str(folder),
            action="Build them with `build-engine plugins build`",
        )
    if json:
        print_json({"libraries": rows})
        return
    columns = ["version", "tensorrt", "cuda", "machine", "architectures", "plugins"]
    cells = [[r["path"].name, *(r[column] for column in columns)] for r in rows]
    print_table(["library", *columns], cells)


def _architectures(given: str | None) -> tuple[str, ...]:
    if given is None:
        return ()
    names = tuple(name.strip().removeprefix("sm") for name in given.split(",") if name.strip())
    if not names:
        raise UsageError("--arch", expected="GPU architectures such as 90,120", found=repr(given))
    return names
