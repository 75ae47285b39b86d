from __future__ import annotations

import io
import sys
import threading
import time

import pytest

from torchferry.cli.progress import progress


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
    with progress(delay=0.1) as begin:
        begin("capture")
        time.sleep(0.5)
    text = terminal.getvalue()
    assert "capture … 0 s" in text
    assert text.endswith("\r\x1b[2K")
    assert "\n" not in text


def test_short_steps_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = replace_stderr(monkeypatch)
    with progress(delay=5.0) as begin:
        for name in ("capture", "convert"):
            begin(name)
            time.sleep(0.25)
    assert terminal.getvalue() == "\r\x1b[2K"


def test_before_the_first_step_there_is_nothing_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = replace_stderr(monkeypatch)
    with progress(delay=0.0):
        time.sleep(0.3)
    assert terminal.getvalue() == "\r\x1b[2K"


def test_nothing_is_shown_where_it_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = replace_stderr(monkeypatch, terminal=False)
    with progress(delay=0.0) as begin:
        begin("capture")
        time.sleep(0.3)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_line_is_wiped_after_an_error_too(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def work() -> None:
        with progress(delay=0.0) as begin:
            begin("capture")
            time.sleep(0.3)
            raise error

    terminal = replace_stderr(monkeypatch)
    before = threading.active_count()
    with pytest.raises(error):
        work()
    assert terminal.getvalue().endswith("\r\x1b[2K")
    assert threading.active_count() == before
