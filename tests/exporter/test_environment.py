import json

import pytest
import torch

from torchferry.converter import lowering
from torchferry.errors import UsageError
from torchferry.exporter import environment as module
from torchferry.exporter.environment import environment
from torchferry.seams import table


def texts(report):
    return [str(block) for section in report.sections for block in section.blocks]


def test_what_is_installed_is_told():
    report = environment()
    data = json.loads(json.dumps(report.data))
    assert (report.ok, data["kind"], data["missing"], data["problems"]) == (
        True, "environment", [], [],
    )  # fmt: skip
    assert data["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert data["machine"]["threads of torch"] == str(torch.get_num_threads())
    assert "CPUExecutionProvider" in data["machine"]["providers of onnxruntime"]
    assert data["machine"]["C compiler"]
    assert data["machine"]["compiled kernels"].split(" in ")[0].isdecimal()
    assert "0 problems, 0 names missing" in report.verdict


def test_what_is_missing_stands_there_with_what_it_was_for(monkeypatch):
    def find(name):
        if "_check_is_size" in name:
            raise LookupError(name)

    monkeypatch.setattr(module, "find", find)
    monkeypatch.setitem(lowering._ABSENT, "aten.gone.default", len)
    report = environment()
    assert report.data["missing"] == ["torch._check_is_size"]
    assert "aten.gone.default" in report.data["absent"]
    shown = " ".join(texts(report))
    assert table.SEAMS["torch._check_is_size"].without in shown
    assert "1 name missing" in report.verdict


def test_kernels_that_are_wrong_in_this_version_are_named(monkeypatch):
    monkeypatch.setattr(module, "installed", lambda name: "1.27.0")
    report = environment()
    assert any("makes NaN of a row" in said for said in report.data["kernels"])
    assert "right from" in " ".join(texts(report))
    monkeypatch.setattr(module, "installed", lambda name: "1.32.0")  # nothing is left
    assert environment().data["kernels"] == []


def test_what_is_wrong_stands_first(monkeypatch):
    monkeypatch.setattr(module, "complaints", lambda: ["torch is too old: pip install torch"])
    report = environment()
    assert "torch is too old" in texts(report)[0]
    assert report.data["problems"] == ["torch is too old: pip install torch"]
    assert report.verdict.startswith("1 problem,")


@pytest.mark.parametrize("error", [ImportError("no libcuda"), OSError("no libcuda")])
def test_a_library_that_cannot_be_imported_is_told(error, monkeypatch):
    def broken():
        raise error

    monkeypatch.setattr(module, "_torch", broken)
    assert environment().data["machine"]["torch"] == "cannot be imported: no libcuda"


def test_it_also_works_where_nothing_else_does(monkeypatch):
    """A name that all rooms need is gone."""

    def broken(*_):
        raise UsageError("torch 9 has no OpOverload")

    monkeypatch.setattr(lowering, "_load", broken)
    report = environment()
    assert "torch 9 has no OpOverload" in report.data["problems"]


def test_a_compiler_that_is_not_there(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    assert environment().data["machine"]["C compiler"].startswith("none called ")
