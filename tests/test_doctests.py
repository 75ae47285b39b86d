"""Every example in a docstring of src is run; every public name can be had."""

from __future__ import annotations

import doctest
import importlib
import types
from pathlib import Path

import pytest

import torchferry

SRC = Path(__file__).resolve().parents[1] / "src"
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def modules_with_examples() -> list[str]:
    paths = [path for path in sorted(SRC.rglob("*.py")) if ">>> " in path.read_text("utf-8")]
    names = [".".join(path.relative_to(SRC).with_suffix("").parts) for path in paths]
    return [name.removesuffix(".__init__") for name in names]


def run_examples(module: types.ModuleType) -> tuple[int, str]:
    """How many examples were run, and the report of those that failed."""
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module):
        runner.run(test, out=report.append)
    return runner.tries, "".join(report)


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tried, report = run_examples(importlib.import_module(name))
    assert not report, report
    assert tried, f"{name} shows >>> in no docstring that doctest finds"


def test_a_wrong_example_is_reported() -> None:
    module = types.ModuleType("wrong", ">>> 1 + 1\n3\n")
    tried, report = run_examples(module)
    assert tried == 1
    assert "Expected:\n    3\nGot:\n    2" in report


@pytest.mark.parametrize("name", getattr(torchferry, "__all__", []))
def test_public_name_can_be_had_and_says_what_it_is(name: str) -> None:
    value = getattr(torchferry, name)
    if callable(value):
        assert value.__doc__, f"torchferry.{name} has no docstring"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        torchferry.no_such_name  # noqa: B018  # the access is what is tested
