from __future__ import annotations

import dataclasses
import io
import subprocess
import sys

import pytest
from rich.console import Console

import torchferry.report
from torchferry.report import Cell, Report, model, text


def test_the_room_gives_all_of_the_model():
    assert set(torchferry.report.__all__) == set(model.__all__)


def test_a_report_needs_only_title_outcome_and_verdict():
    report = Report("t", True, "v")
    assert (report.sections, report.problems, report.next_steps) == ((), (), ())
    assert report.data == {}


def test_blocks_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Cell("a").text = "b"


def test_a_report_prints_as_the_command_does(failed, capsys):
    print(failed)  # noqa: T201  (this is what is tested)
    printed = capsys.readouterr().out
    console = Console(file=io.StringIO(), width=100, color_system=None, highlight=False)
    text.render(failed, console)
    assert printed.rstrip("\n") == console.file.getvalue().rstrip("\n")
    assert str(failed) == f"{failed}"
    assert "\x1b" not in printed
    assert printed.startswith("✗ FAILED: logits differs at 3 sizes")


def test_its_repr_is_short(failed):
    assert repr(failed) == (
        "Report('export zoo:tiny-llm', ok=False, verdict='logits differs at 3 sizes')"
    )
    assert len(repr(Report("t", True, "v" * 5000))) < 200


class Printer:
    def text(self, text):
        self.said = text


def test_notebooks_show_it(good):
    assert good._repr_html_().startswith('<div class="tf-report"')
    printer = Printer()
    good._repr_pretty_(printer, cycle=False)
    assert printer.said == str(good)
    good._repr_pretty_(printer, cycle=True)
    assert printer.said == repr(good)


def test_an_output_of_few_characters(good, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    print(good)  # noqa: T201  (this is what is tested)
    stream.flush()
    assert stream.buffer.getvalue().startswith(b"OK: the outputs are equal")


def test_data_alone_needs_no_renderer():
    code = (
        "import sys; from torchferry.report.model import Report; repr(Report('t', True, 'v')); "
        "assert not {'rich', 'jinja2'} & sys.modules.keys(), sys.modules.keys()"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
