"""Assert in a test that a model exports and computes the same: ``assert_exports``.

It is a plugin of pytest too, found by itself: ``--torchferry-artifacts FOLDER`` says where reports
and models of failed assertions are kept, for CI to upload; ``torchferry-artifacts`` beside
pytest's configuration unless it is given. With the option, reports of those that pass are kept
as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

if TYPE_CHECKING:
    import pytest
    import torch

    from torchferry.exporter.export import Options
    from torchferry.exporter.program import OnnxProgram
    from torchferry.report.model import Report

__all__ = ["assert_exports"]


@dataclass
class _Place:
    """Where artefacts go, and the test that runs."""

    folder: Path = Path("torchferry-artifacts")
    keep_all: bool = False
    test: str = ""

    @property
    def of_test(self) -> Path:
        return self.folder / (re.sub(r"[^\w.-]+", "-", self.test).strip("-") or "assert_exports")


_PLACE = _Place()


def assert_exports(
    model: torch.nn.Module,
    inputs: Sequence[Any] | Callable[..., Any],
    *,
    dynamic: Collection[str] | None = None,
    folder: Path | str | None = None,
    **options: Unpack[Options],
) -> OnnxProgram:
    """Export a model and fail, in the words of the report, unless it is verified.

    Args:
        model: the module, in eval mode.
        inputs: two or more sets of inputs of different sizes, or a function of sizes.
        dynamic: names of the dimensions that must be verified, no more and no fewer; those that
            vary in the inputs when ``None``.
        folder: where to keep what failed; see the module.
        options: of `torchferry.export`: ``target``, ``opset``, ``strict``, ``budget``, …

    Returns:
        The verified program.

    Raises:
        AssertionError: it does not export, differs from PyTorch, or has other dynamic dimensions.
        UsageError: the inputs or an option cannot be used.

    >>> import torch
    >>> sets = [(torch.rand(2, 4),), (torch.rand(3, 4),)]
    >>> program = assert_exports(torch.nn.Linear(4, 2), sets, dynamic=["batch_size"])
    >>> program(torch.rand(7, 4)).shape
    torch.Size([7, 2])
    """
    __tracebackhide__ = True
    place = Path(folder) if folder is not None else _PLACE.of_test
    program, report = _export(model, inputs, place, options)
    wrong = _other_dimensions(report, dynamic)
    if wrong or not report.ok:
        kept = _keep(place, str(report), report, program)
        raise AssertionError("\n".join([*wrong, str(report).rstrip(), kept]))
    if folder is not None or _PLACE.keep_all:
        _keep(place, str(report), report)
    return program


def _export(
    model: torch.nn.Module, inputs: Any, place: Path, options: Options
) -> tuple[OnnxProgram, Report]:
    """The export and its report; one that is not to be had is an assertion that fails."""
    __tracebackhide__ = True
    from torchferry.errors import FerryError, UsageError
    from torchferry.exporter.export import export

    title = type(model).__name__
    try:
        program = export(model, inputs, title=title, progress=False, **options)
    except UsageError:
        raise
    except FerryError as error:
        said = f"{title} does not export: {type(error).__name__}: {error}  [{error.code}]"
        raise AssertionError(
            f"{said}\n{_keep(place, said)}"
        ) from None  # pytest would print the traces of every attempt
    return program, cast("Report", program.report)


def _other_dimensions(report: Report, dynamic: Collection[str] | None) -> list[str]:
    """How the verified dimensions are not those that a test asks for, in sentences."""
    if dynamic is None:
        return []
    rows = {row["name"]: row["status"] for row in report.data["dimensions"]}
    verified = [name for name, status in rows.items() if status.startswith("verified")]
    missing = [
        f"{name} is {rows.get(name, 'not dynamic: it has one size in all inputs')}"
        for name in dynamic
        if name not in verified
    ]
    more = [
        f"{name} is dynamic, and the test does not name it"
        for name in verified
        if name not in dynamic
    ]
    return missing + more


def _keep(
    place: Path, text: str, report: Report | None = None, program: OnnxProgram | None = None
) -> str:
    """Write the artefacts; a line that says where they are."""
    from torchferry.report import html, json

    place.mkdir(parents=True, exist_ok=True)
    (place / "report.txt").write_text(f"{text}\n", "utf-8")
    if report is not None:
        html.dump(report, place / "report.html")
        json.dump(report, place / "report.json")
    if program is not None:
        program.save(place / "model.onnx")
    return f"kept for you: {place}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the plugin; pytest calls this."""
    parser.getgroup("torchferry").addoption(
        "--torchferry-artifacts",
        metavar="FOLDER",
        help="where assert_exports keeps reports, and the models of assertions that fail",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Read the option; pytest calls this."""
    asked = config.getoption("--torchferry-artifacts", None)
    _PLACE.keep_all = asked is not None
    _PLACE.folder = Path(asked) if asked else config.rootpath / "torchferry-artifacts"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember the test that begins; pytest calls this."""
    _PLACE.test = item.nodeid
