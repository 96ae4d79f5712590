"""``build-engine package``: engines that ``compile`` made become a model repository."""

from pathlib import Path
from typing import Annotated

import typer

from .output import JsonOption, QuietOption, megabytes, open_progress, print_json, print_table
from .paths import check_output, to_path


def package_engines(
    engines: Annotated[
        list[Path],
        typer.Argument(parser=to_path, metavar="ENGINES...", help="Engine folders, each with an engine.json."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", parser=to_path, metavar="FOLDER", help="Model repository.")],
    force: Annotated[bool, typer.Option("--force", help="Replace packages of another model.")] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Package engines as a Triton model repository; every file is checked against its checksum.

    Example: [cyan]build-engine package engines/* --output repository[/cyan]
    """
    from ..pipeline import package

    check_output(output)
    packages = package(engines, output, open_progress(quiet), force=force)
    if json:
        print_json({"packages": [p.to_dict() for p in packages]})
    else:
        print_table(["packaged", "size"], [[p.folder, megabytes(p.num_bytes)] for p in packages])
