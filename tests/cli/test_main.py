from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import torchferry
from torchferry.cli.main import main
from torchferry.errors import (
    CaptureError,
    ConversionError,
    FerryError,
    RunError,
    UsageError,
)
from torchferry.exporter import deliver as delivering
from torchferry.report.model import Cell, Report, Section, Table

Run = Callable[..., int]

ROWS = ((Cell("verified", "good"),), (Cell("failed", "bad"),))
GOOD = Report(
    "export m",
    True,
    "all equal",
    (Section("Sizes", (Table(("verdict",), ROWS),)),),
    next_steps=("go",),
)
BAD = Report("export m", False, "1 problem with m", problems=("y differs",))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command line in this process, with what the export would give; its exit code."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "TORCHFERRY_DEBUG"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str, gives: Report | BaseException = GOOD) -> int:
        def deliver(*args: Any, **kwargs: Any) -> Report:
            if isinstance(gives, BaseException):
                raise gives
            return gives

        monkeypatch.setattr(delivering, "deliver", deliver)
        monkeypatch.setattr(sys, "argv", ["torchferry", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        assert isinstance(stop.value.code, int)
        return stop.value.code

    return run


EXPORT = ("export", "m", "-o", "out")


@pytest.mark.parametrize(("report", "code"), [(GOOD, 0), (BAD, 1)])
def test_the_verdict_is_printed_and_is_the_exit_code(
    run: Run, capsys: pytest.CaptureFixture[str], report: Report, code: int
) -> None:
    assert run(*EXPORT, gives=report) == code
    printed = capsys.readouterr()
    assert report.verdict in printed.out
    assert printed.err == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("there is no file x"), 2),
        (CaptureError("cannot capture", [("strict", "no")]), 3),
        (ConversionError("no ONNX form"), 3),
        (FerryError("it failed"), 3),
        (RunError("onnxruntime cannot load it"), 4),
    ],
)
def test_an_error_is_one_sentence_and_an_exit_code(
    run: Run, capsys: pytest.CaptureFixture[str], error: FerryError, code: int
) -> None:
    assert run(*EXPORT, gives=error) == code
    printed = capsys.readouterr()
    entry = f"  [{error.code}]" if error.code else ""
    assert (printed.out, printed.err) == ("", f"torchferry: {error}{entry}\n")


def test_ctrl_c_is_130(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*EXPORT, gives=KeyboardInterrupt()) == 130
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "torchferry: interrupted; what was not finished was removed\n"


def test_a_fault_of_our_own_is_not_taken_for_a_failed_check(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*EXPORT, gives=ZeroDivisionError("division by zero")) == 3
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert error.splitlines()[-1].startswith("torchferry: ZeroDivisionError, which is a fault in")


def test_debug_shows_where_an_error_comes_from(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHFERRY_DEBUG", "1")
    assert run(*EXPORT, gives=UsageError("no such thing")) == 2
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert error.endswith("torchferry: no such thing  [TF-U]\n")
    monkeypatch.setenv("TORCHFERRY_DEBUG", "0")
    run(*EXPORT, gives=UsageError("there is no file x"))
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("export",), "Missing argument 'MODEL'"),
        (("export", "m"), "say what to do: -o OUT to export, or --check FILE to compare"),
        (("expotr", "m"), "No such command 'expotr'"),
        ((*EXPORT, "--frobnicate"), "No such option: --frobnicate"),
        ((*EXPORT, "--opset", "twenty"), "Invalid value for '--opset'"),
        ((*EXPORT, "--dtype", "fp8"), "'fp8' is not one of 'fp32', 'fp16', 'bf16'"),
        ((*EXPORT, "--target", "tpu"), "'tpu' is not one of 'onnx', 'onnxruntime'"),
        ((*EXPORT, "--exporter", "x"), "'x' is not one of 'to_onnx', 'onnx_dynamo'"),
    ],
)
def test_wrong_words_are_wrong_usage(
    run: Run, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert run(*words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert "Traceback" not in printed.err


def test_no_words_show_the_help(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 2
    assert "export" in capsys.readouterr().err


def test_version_and_help(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"torchferry {torchferry.__version__}\n"
    for words in (("--help",), ("-h",), ("export", "-h")):
        assert run(*words) == 0
        assert "Usage: " in capsys.readouterr().out


# The report in files ---------------------------------------------------------------------------


def test_the_report_goes_to_files_too(run: Run, tmp_path: Path) -> None:
    assert run(*EXPORT, "--html", "r.html", "--json", "r.json", gives=BAD) == 1
    assert "1 problem with m" in (tmp_path / "r.html").read_text()
    assert json.loads((tmp_path / "r.json").read_text())["problems"] == ["y differs"]


@pytest.mark.parametrize("option", ["--html", "--json"])
@pytest.mark.parametrize(
    ("file", "said"),
    [("no/r", "cannot write no/r: no is no folder"), ("folder", "cannot write folder: it is a")],
)
def test_a_file_that_cannot_be_written_is_told_before_the_work(
    run: Run, capsys: pytest.CaptureFixture[str], option: str, file: str, said: str
) -> None:
    Path("folder").mkdir()
    assert run(*EXPORT, option, file, gives=AssertionError("the work was done")) == 2
    assert capsys.readouterr().err.startswith(f"torchferry: {said}")


def test_a_file_in_the_folder_that_the_command_makes_is_fine(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("other").mkdir()
    # Nothing made it here; a real export would have, and until then nobody may complain.
    assert run(*EXPORT, "--json", "out/report.json") == 2
    printed = capsys.readouterr()
    assert "all equal" in printed.out
    assert printed.err.startswith("torchferry: cannot write out/report.json: No such file")


# Where it is shown -----------------------------------------------------------------------------


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]  # a plain attribute will do

    def isatty(self) -> bool:
        return True


def shown(run: Run, monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> str:
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("TERM", "xterm-256color")
    run(*EXPORT)
    return stream.getvalue()


def test_colours_on_a_terminal_unless_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[1;32m" in shown(run, monkeypatch, Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    plain = shown(run, monkeypatch, Terminal())
    assert "all equal" in plain
    assert "32m" not in plain
    assert "31m" not in plain


def test_no_escape_codes_elsewhere(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(run, monkeypatch, io.StringIO())
    assert "all equal" in text
    assert "\x1b" not in text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_with_versions_that_do_not_fit_they_are_said_instead(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torchferry.seams import versions

    monkeypatch.setattr(versions, "complaints", lambda: ["torch 2.5 is older: pip install torch"])
    assert run(*EXPORT, gives=AttributeError("module 'torch' has no attribute 'x'")) == 3
    said = "torchferry: AttributeError, and torch 2.5 is older: pip install torch"
    assert capsys.readouterr().err.splitlines()[-1] == said


@pytest.mark.slow
def test_a_full_disk_behind_a_pipe_is_no_fault_of_torchferry() -> None:
    command = [sys.executable, "-m", "torchferry", "observe", "zoo:mlp"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "torchferry: cannot write what was found: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failed_report_does_not_go_into_an_earlier_good_export(tmp_path: Path) -> None:
    out, report = tmp_path / "out", Report("export", ok=False, verdict="1 problem")
    place = sys.modules[main.__module__]._place
    assert place(out / "report.json", report, out) == tmp_path / "out.failed" / "report.json"
    assert place(tmp_path / "report.json", report, out) == tmp_path / "report.json"
    assert place(None, report, out) is None
    good = Report("export", ok=True, verdict="fine")
    assert place(out / "report.json", good, out) == out / "report.json"
