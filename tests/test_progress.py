from __future__ import annotations

import io
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchferry
from torchferry.observer import Observation
from torchferry.progress import show_steps


class Stream(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def replace_stderr(monkeypatch: pytest.MonkeyPatch, *, terminal: bool = True) -> Stream:
    """Done in the test itself: between its setup and its call pytest puts its own stream there."""
    stream = Stream(terminal=terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_long_step_is_shown_and_wiped_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = replace_stderr(monkeypatch)
    with show_steps(delay=0.1) as begin:
        begin("capture")
        time.sleep(0.5)
    text = terminal.getvalue()
    assert "capture … 0 s" in text
    assert text.endswith("\r\x1b[2K")
    assert "\n" not in text


def test_short_steps_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = replace_stderr(monkeypatch)
    with show_steps(delay=5.0) as begin:
        for name in ("capture", "convert"):
            begin(name)
            time.sleep(0.25)
    assert terminal.getvalue() == "\r\x1b[2K"


def test_before_the_first_step_there_is_nothing_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = replace_stderr(monkeypatch)
    with show_steps(delay=0.0):
        time.sleep(0.3)
    assert terminal.getvalue() == "\r\x1b[2K"


def test_nothing_is_shown_where_it_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = replace_stderr(monkeypatch, terminal=False)
    with show_steps(delay=0.0) as begin:
        begin("capture")
        time.sleep(0.3)
    assert stream.getvalue() == ""


class Handle:
    """What IPython gives for a display that can be changed."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.lines.append(data["text/plain"])


def put_notebook(monkeypatch: pytest.MonkeyPatch, kernel: object) -> list[str]:
    """IPython as a kernel has it (or, without a kernel, as a terminal's shell); what it shows."""
    lines: list[str] = []
    module, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")

    def show(data: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert display_id
        handle = Handle(lines)
        handle.update(data, raw=raw)
        return handle

    shell = types.SimpleNamespace(kernel=kernel)
    vars(module)["get_ipython"], vars(display)["display"] = lambda: shell, show
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return lines


def test_a_notebook_shows_one_line_below_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = replace_stderr(monkeypatch, terminal=False)
    lines = put_notebook(monkeypatch, object())
    with show_steps(delay=0.1) as begin:
        begin("capture")
        time.sleep(0.7)
    assert "capture … 0 s" in lines[0]
    assert len(lines) > 2
    assert lines[-1] == ""
    assert stream.getvalue() == ""


def test_a_notebook_shows_nothing_of_short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_stderr(monkeypatch, terminal=False)
    lines = put_notebook(monkeypatch, object())
    with show_steps(delay=5.0) as begin:
        begin("capture")
        time.sleep(0.25)
    assert lines == []


def test_ipython_without_a_kernel_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_stderr(monkeypatch, terminal=False)
    lines = put_notebook(monkeypatch, None)
    with show_steps(delay=0.0) as begin:
        begin("capture")
        time.sleep(0.25)
    assert lines == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_line_is_wiped_after_an_error_too(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def work() -> None:
        with show_steps(delay=0.0) as begin:
            begin("capture")
            time.sleep(0.3)
            raise error

    terminal = replace_stderr(monkeypatch)
    before = threading.active_count()
    with pytest.raises(error):
        work()
    assert terminal.getvalue().endswith("\r\x1b[2K")
    assert threading.active_count() == before


def test_a_step_goes_to_a_function_or_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = replace_stderr(monkeypatch)
    steps: list[str] = []
    with show_steps(steps.append, delay=0.0) as begin:
        begin("capture")
    with show_steps(False, delay=0.0) as begin:
        begin("convert")
        time.sleep(0.3)
    assert steps == ["capture"]
    assert terminal.getvalue() == ""


def test_there_are_never_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = replace_stderr(monkeypatch)
    with show_steps(delay=0.0) as outer, show_steps(delay=0.0) as inner:
        outer("export")
        inner("capture")
        time.sleep(0.5)
    assert "export" in terminal.getvalue()
    assert "capture" not in terminal.getvalue()
    with show_steps(delay=0.0) as begin:  # the next one has it again
        begin("compare")
        time.sleep(0.5)
    assert "compare" in terminal.getvalue()


def test_what_is_put_in_the_place_of_stderr_meanwhile_gets_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = replace_stderr(monkeypatch)
    with show_steps(delay=0.0) as begin:
        begin("capture")
        other = replace_stderr(monkeypatch)
        time.sleep(0.5)
    assert other.getvalue() == ""
    assert "capture" in terminal.getvalue()


def test_without_a_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)  # as under pythonw
    with show_steps() as begin:
        begin("capture")


MODEL = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
SETS = [((torch.ones(2, 4),), {}), ((torch.ones(3, 4),), {})]
CALLS: dict[str, Callable[[Any], object]] = {
    "export": lambda progress: torchferry.export(MODEL, SETS, progress=progress),
    "capture": lambda progress: torchferry.capture(
        MODEL, Observation.from_inputs(MODEL, SETS), progress=progress
    ),
    "compare": lambda progress: torchferry.compare(
        MODEL, torchferry.export(MODEL, SETS, check=False, progress=False), SETS, progress=progress
    ),
    "diagnose": lambda progress: torchferry.diagnose(MODEL, SETS, progress=progress),
}
STEPS = {
    "export": ["infer shapes", "capture", "convert", "optimize", "save", "load", "verify"],
    "capture": ["capture: non-strict, sizes 0 and 1 not special"],
    "compare": ["prepare", "run side by side", "run side by side, set 2", "explain"],
    "diagnose": ["run the model", "export piece by piece"],
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_tell_their_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    CALLS[name](steps.append)
    assert [step for step in steps if step in STEPS[name]] == STEPS[name]
    terminal = replace_stderr(monkeypatch)
    CALLS[name](False)
    assert terminal.getvalue() == ""
    start = time.monotonic()
    CALLS[name](None)
    if time.monotonic() - start < 1:  # no step took a second
        assert set(terminal.getvalue().split("\r\x1b[2K")) == {""}
