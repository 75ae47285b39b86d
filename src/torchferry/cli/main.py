"""Register the commands, show their reports, and turn errors into exit codes.

0 done and equal, 1 a check failed, 2 wrong usage, 3 the export failed, 4 onnxruntime failed,
130 Ctrl-C.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from torchferry.cli.commands.capture import capture
from torchferry.cli.commands.compare import compare
from torchferry.cli.commands.deploy import deploy
from torchferry.cli.commands.diagnose import diagnose
from torchferry.cli.commands.dump import dump
from torchferry.cli.commands.export import export
from torchferry.cli.commands.inspect import inspect as inspect_file
from torchferry.cli.commands.observe import observe
from torchferry.cli.commands.optimize import optimize
from torchferry.cli.commands.sweep import sweep
from torchferry.config import read_config
from torchferry.errors import FerryError, UsageError
from torchferry.report.model import Report

__all__ = ["app", "main"]

_REPORT_OPTIONS = {
    "html": Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the report page to FILE.")
    ],
    "json": Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the report as JSON to FILE.")
    ],
}

_INTERRUPTED = 130

app = typer.Typer(
    name="torchferry",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from torchferry import __version__

        print(f"torchferry {__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Take a PyTorch model to ONNX Runtime, prove it computes the same, show where it does not."""


def _reporting(command: Callable[..., Report]) -> Callable[..., None]:
    """The command with --html and --json, its report shown and its verdict the exit code."""

    @functools.wraps(command)
    def run(*args: Any, html: Path | None = None, json: Path | None = None, **kwargs: Any) -> None:
        for file in (html, json):
            if file is not None:
                _check_file(file, made=kwargs.get("out"))
        report = command(*args, **kwargs)
        _show(report)
        _write(report, *(_place(file, report, kwargs.get("out")) for file in (html, json)))
        if not report.ok:
            raise typer.Exit(1)

    signature = inspect.signature(command, eval_str=True)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _REPORT_OPTIONS.items()
    ]
    parameters = [*signature.parameters.values(), *options]
    # Typer reads the options here.
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=parameters, return_annotation=None
    )
    return run


def _place(file: Path | None, report: Report, made: Path | None) -> Path | None:
    """Where a report goes: what failed does not go into the folder of an earlier good export."""
    if file is None or made is None or report.ok or file.parent.resolve() != made.resolve():
        return file
    return made.with_name(f"{made.name}.failed") / file.name


def _check_file(file: Path, *, made: Path | None) -> None:
    """Refuse a file for the report before the work is done; the command makes the folder ``made``.

    Raises:
        UsageError: it cannot be written.
    """
    folder = file.parent
    if file.is_dir():
        raise UsageError(f"cannot write {file}: it is a folder; give a file")
    if folder != made and not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UsageError(f"cannot write {file}: {folder} is no folder that can be written to")


def _show(report: Report) -> None:
    from rich.console import Console

    from torchferry.report import text

    try:
        text.render(report, Console(no_color=read_config().no_color or None, highlight=False))
    except SystemExit:
        # Rich's way to say that the reader of a pipe (head, less) has enough. It has closed
        # stdout; the report's verdict stays the exit code.
        return


def _write(report: Report, html: Path | None, json: Path | None) -> None:
    if html is not None:
        from torchferry.report import html as page

        page.dump(report, html)
    if json is not None:
        from torchferry.report import json as data

        data.dump(report, json)


for _name, _command in (
    ("capture", capture),
    ("compare", compare),
    ("deploy", deploy),
    ("diagnose", diagnose),
    ("export", export),
    ("dump", dump),
    ("observe", observe),
    ("inspect", inspect_file),
    ("optimize", optimize),
    ("sweep", sweep),
):
    app.command(_name)(_reporting(_command))


def main() -> NoReturn:
    """Run the command line and exit."""
    try:
        code = app(standalone_mode=False) or 0
    except FerryError as error:
        code = _complain(f"{error}  [{error.code}]" if error.code else str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except OSError as error:
        code = _complain(f"cannot write what was found: {error}", UsageError.exit_code)
    except Exception as error:  # noqa: BLE001  (the driver's wrapper, so that 1 means one thing)
        code = _unexpected(error)
    if code == _INTERRUPTED:  # Typer turns Ctrl-C into the code
        print("torchferry: interrupted; what was not finished was removed", file=sys.stderr)
    sys.exit(code)


def _complain(message: str, code: int) -> int:
    if read_config().debug:
        traceback.print_exc()
    print(f"torchferry: {message}", file=sys.stderr)
    return code


def _unexpected(error: Exception) -> int:
    """Show a usage error that Typer found, or a fault of torchferry's own."""
    show = getattr(error, "show", None)
    if show is not None:
        show()
        return UsageError.exit_code
    traceback.print_exc()
    from torchferry.seams.versions import complaints

    wrong = complaints()
    if wrong:  # most likely why, and something that the user can change
        said = "; ".join(wrong)
        print(f"torchferry: {type(error).__name__}, and {said}", file=sys.stderr)
        return FerryError.exit_code
    print(
        f"torchferry: {type(error).__name__}, which is a fault in torchferry and not in your "
        "input; please report it with the lines above",
        file=sys.stderr,
    )
    return FerryError.exit_code
