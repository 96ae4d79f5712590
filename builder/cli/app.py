"""Joins the commands, and turns every ending into an exit code and at most one line on stderr."""

import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from draftsmith.model_repo.contract.errors import DraftsmithError, ManifestError, RequestError

from ..errors import BuilderError
from . import (
    backends,
    build,
    chat,
    choose_vocabulary,
    evaluate,
    fit_vocabulary,
    generate,
    inspect,
    package,
    plugins,
    serve,
    train_draft,
)

EXIT_USAGE = 2
EXIT_FAILED = 5
EXIT_SERVING = 6
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="build-engine",
    help="Build Hugging Face and GGUF checkpoints into engines, package them for Triton, serve and try them.",
    epilog="Exit codes: 0 done, 2 usage, 3 checkpoint, 4 backend missing, 5 build failed, 6 serving failed.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("inspect")(inspect.inspect_checkpoint)
app.command("build")(build.build_packages)
app.command("compile")(build.compile_engines)
app.command("package")(package.package_engines)
app.command("serve")(serve.serve_repository)
app.command("chat")(chat.chat_with_model)
app.command("generate")(generate.generate_text)
app.command("evaluate")(evaluate.evaluate_configurations)
app.command("fit-vocabulary")(fit_vocabulary.fit_vocabulary)
app.command("choose-vocabulary")(choose_vocabulary.choose_vocabulary)
app.command("train-draft")(train_draft.train_draft)
app.command("backends")(backends.list_backends)
app.add_typer(plugins.plugins, name="plugins")


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"draftsmith {metadata.version('draftsmith')}")
        raise typer.Exit


@app.callback()
def _set_up(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Log details; show the traceback of an error.")] = False,
) -> None:
    if debug:
        os.environ["DRAFTSMITH_DEBUG"] = "1"
        logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)


def command_options() -> dict[str, set[str]]:
    """Every command with its option names, for completeness tests of the documents."""
    group = typer.main.get_command(app)
    commands: dict[str, Any] = getattr(group, "commands", {})
    return {name: {"--help", *_option_names(command)} for name, command in commands.items()}


def _option_names(command: Any) -> set[str]:
    """Of a command, or of all commands of a group."""
    own = {text for parameter in command.params for text in (*parameter.opts, *parameter.secondary_opts)}
    return own.union(*map(_option_names, getattr(command, "commands", {}).values()))


def main() -> NoReturn:
    """The console entry of ``build-engine``."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; nothing escapes but the exit code."""
    _open_missing_streams()
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGHUP, _terminate)
    try:
        code = app(args=list(arguments), prog_name="build-engine", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Nobody reads our output any more (build-engine inspect ... | head): keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        return _report(error)


def _open_missing_streams() -> None:
    """Python has None for a stream that was closed before it started (``<&-``): read nothing, write nowhere.

    A file that is opened later must not take its number either.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - lives as long as we do


def _terminate(number: int, _frame: object) -> NoReturn:
    """Leave as Ctrl-C does, through every ``finally``; the exit code is the shell's for the signal."""
    raise SystemExit(128 + number)


def _report(error: Exception) -> int:
    if os.environ.get("DRAFTSMITH_DEBUG"):
        traceback.print_exc()
    text, code = _describe(error)
    print(f"error: {' '.join(text.split())}", file=sys.stderr)
    return code


def _describe(error: Exception) -> tuple[str, int]:
    """The line to print, and the exit code."""
    if isinstance(error, BuilderError):
        return str(error), error.exit_code
    if isinstance(error, RequestError) or _is_refused_by_client(error):
        return str(error), EXIT_USAGE
    if isinstance(error, ManifestError):
        return str(error), EXIT_FAILED
    if isinstance(error, DraftsmithError):
        return str(error), EXIT_SERVING
    # Typer's usage errors; since 0.20 it carries its own copy of click, so they are known by what they can do.
    if hasattr(error, "format_message"):
        return f"{error.format_message().rstrip('.?')}. See build-engine --help", EXIT_USAGE
    if isinstance(error, typer.Abort):
        return "interrupted", EXIT_INTERRUPTED
    if isinstance(error, OSError):
        reason = (error.strerror or str(error)).lower()
        return f"{error.filename or 'input or output'}: expected to be usable, found {reason}", EXIT_FAILED
    return f"{type(error).__name__}: {error}. This is a bug: run with --debug for the traceback", EXIT_FAILED


def _is_refused_by_client(error: Exception) -> bool:
    """True for an option or prompt that cannot be served; the client is loaded only by commands that talk."""
    client_errors = sys.modules.get("draftsmith.client.errors")
    return client_errors is not None and isinstance(error, client_errors.InvalidRequest)
