"""Register the commands, show their reports, and turn errors into exit codes.

0 done and equal, 1 a check failed, 2 wrong usage, 3 the export failed, 4 onnxruntime failed,
130 Ctrl-C.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from torchferry.cli.commands.export import export
from torchferry.config import read_config
from torchferry.errors import FerryError
from torchferry.report.model import Report

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["app", "main"]

_REPORT_OPTIONS = {
    "html": Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the report page to FILE.")
    ],
    "json": Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the report as JSON to FILE.")
    ],
}

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
        report = command(*args, **kwargs)
        _write(report, html, json)
        from torchferry.report import text

        text.render(report, _console())
        if not report.ok:
            raise typer.Exit(1)

    signature = inspect.signature(command, eval_str=True)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _REPORT_OPTIONS.items()
    ]
    parameters = [*signature.parameters.values(), *options]
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]  # typer reads options here
        parameters=parameters, return_annotation=None
    )
    return run


def _write(report: Report, html: Path | None, json: Path | None) -> None:
    if html is not None:
        from torchferry.report import html as page

        page.dump(report, html)
    if json is not None:
        from torchferry.report import json as data

        data.dump(report, json)


def _console() -> Console:
    from rich.console import Console

    return Console(no_color=read_config().no_color or None, highlight=False, soft_wrap=False)


app.command()(_reporting(export))


def main() -> NoReturn:
    """Run the command line and exit."""
    try:
        code = app(standalone_mode=False) or 0
    except FerryError as error:
        code = _complain(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader of a pipe (head, less) has enough: no complaint, and no second one at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141  # what a shell reports for SIGPIPE
    except KeyboardInterrupt:
        code = _complain("interrupted; nothing was written", 130)
    except typer.Exit as stop:
        code = stop.exit_code
    except typer.Abort:
        code = 130
    except Exception as error:
        # Click's own usage errors know how to show themselves; anything else is a bug of ours.
        if not hasattr(error, "show"):
            raise
        error.show()
        code = 2
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str, code: int) -> int:
    if read_config().debug:
        import traceback

        traceback.print_exc()
    print(f"torchferry: {message}", file=sys.stderr)
    return code
